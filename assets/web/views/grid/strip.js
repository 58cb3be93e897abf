// A tiny strip of a run's forwards: a bar each, as high as its tokens, in the colours of the ramp.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 28;
const GAP = 0.16; // of a forward's width

const node = (name, attributes) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
};

export class Strip {
  constructor() {
    this.element = node("svg", {
      class: "gv-strip",
      preserveAspectRatio: "none",
      height: HEIGHT,
      "aria-hidden": "true",
    });
    this.paths = [1, 2, 3, 4, 5].map((n) => node("path", { class: `gv-bar gv-bar-${n}` }));
    this.element.append(...this.paths);
    this.drawn = "";
  }

  // `width`: forwards that the whole strip stands for; `height`: tokens that a full bar stands for.
  draw(steps, width, height) {
    const state = `${steps.length}/${width}/${height}`;
    if (state === this.drawn) return;
    this.drawn = state;
    this.element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const shapes = ["", "", "", "", ""];
    for (const { index, count } of steps) {
      shapes[Math.min(count, 5) - 1] += `M${index} ${height}v${-count}h${1 - GAP}v${count}z`;
    }
    this.paths.forEach((path, i) => path.setAttribute("d", shapes[i]));
  }
}
