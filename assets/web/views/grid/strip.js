// A tiny strip of a run's forwards: a bar each, as high as its tokens, in the colours of the ramp.

import { shape } from "../../core/dom.js";

const HEIGHT = 28;
const GAP = 0.16; // of a forward's width

export class Strip {
  constructor() {
    this.element = shape("svg", "gv-strip", {
      preserveAspectRatio: "none",
      height: HEIGHT,
      "aria-hidden": "true",
    });
    this.paths = [1, 2, 3, 4, 5].map((n) => shape("path", `gv-bar gv-bar-${n}`));
    this.element.append(...this.paths);
    this.drawn = "";
  }

  /**
   * `width`: forwards that the whole strip stands for; `height`: tokens that a full bar stands for.
   * @param {Step[]} steps
   * @param {number} width
   * @param {number} height
   */
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
