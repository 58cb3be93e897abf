// Draws the chart of the frontier as SVG: axes, the paper's curves, ways with their intervals, the visitor's run.

import { make, shape } from "../../core/dom.js";
import { folds, lastOf } from "../../core/folds.js";
import { isVerified } from "../../core/methods.js";
import { frontier, isDone, parting } from "../grid/folds.js";

const HEIGHT = 420;
const WIDEST = 760;
const LETTER = 6.4; // pixels of a letter of a label, near enough
const LINE = 15;
const MARGIN = { left: 46, right: 16, top: 30, bottom: 44 };
/** @type {Record<string, string>} */
const OUTLINES = {
  ar: "M-5.5 -5.5H5.5V5.5H-5.5Z",
  lossless: "M0 -8L8 0L0 8L-8 0Z",
  tau: "M-6 0A6 6 0 1 1 6 0A6 6 0 1 1 -6 0Z",
};

/** @param {Settings} settings */
export const kindOf = (settings) => (settings.method === "ar" ? "ar" : isVerified(settings) ? "lossless" : "tau");

export class Chart {
  /**
   * open(point): it was pressed; point(point): it is pointed at, null when no more.
   * @param {HTMLElement} element
   * @param {{ open(point: FrontierPoint): void, point(point: FrontierPoint | null): void }} report
   */
  constructor(element, report) {
    this.element = element;
    this.report = report;
    this.svg = shape("svg", "fv-plot", { height: HEIGHT });
    this.readout = make("figcaption", "fv-readout");
    element.append(this.svg, this.readout);
  }

  /** @param {FrontierPicture} picture */
  draw({ marks, own, curves, axis }) {
    const width = Math.min(WIDEST, this.element.clientWidth);
    if (!width) return;
    this.svg.setAttribute("width", String(width));
    const paper = curves.flatMap(({ points }) => points.map(({ tpf, accuracy }) => ({ x: tpf, y: accuracy })));
    const ends = marks.flatMap(({ x, low, high }) => [low, high].map((y) => ({ x, y })));
    const range = rangeOf([...ends, ...paper, ...(own ? [own] : [])]);
    const scale = scaleOf(range, width);
    this.svg.replaceChildren(
      ...axes(range, scale, width, axis),
      ...curves.flatMap((curve) => curveShapes(curve, scale, width)),
      bestLine(marks, scale),
      ...marks.map((mark) => this.markOf(mark, scale)),
      ...namesOf(marks, scale, width),
      ...(own ? ownShapes(own, scale, width) : []),
    );
  }

  /**
   * @param {FrontierMark} mark
   * @param {FrontierScale} scale
   */
  markOf({ point, x, y, low, high, isBest }, scale) {
    const node = shape("g", "fv-point");
    node.dataset.kind = kindOf(point.settings);
    node.dataset.best = String(isBest);
    node.dataset.name = point.name;
    const title = shape("title");
    title.textContent = `${point.name}: open as a run`;
    node.append(
      title,
      shape("path", "fv-interval", { d: `M${scale.x(x)} ${scale.y(low)}V${scale.y(high)}` }),
      shape("circle", "fv-reach", { cx: scale.x(x), cy: scale.y(y), r: 13 }),
      shape("path", "fv-dot", {
        d: OUTLINES[kindOf(point.settings)],
        transform: `translate(${scale.x(x)} ${scale.y(y)})`,
      }),
    );
    node.addEventListener("click", () => this.report.open(point));
    node.addEventListener("pointerenter", () => this.report.point(point));
    node.addEventListener("pointerleave", () => this.report.point(null));
    return node;
  }

  /** @param {string | null} name */
  highlight(name) {
    for (const node of this.svg.querySelectorAll(".fv-point"))
      node.classList.toggle("fv-pointed", /** @type {SVGElement} */ (node).dataset.name === name);
  }
}

/**
 * @param {ReturnType<typeof rangeOf>} range
 * @param {number} width
 * @returns {FrontierScale}
 */
function scaleOf({ right, bottom, top }, width) {
  const across = width - MARGIN.left - MARGIN.right;
  const down = HEIGHT - MARGIN.top - MARGIN.bottom;
  return {
    x: (value) => MARGIN.left + (across * (value - 0.9)) / (right - 0.9),
    y: (value) => MARGIN.top + (down * (top - value)) / (top - bottom),
  };
}

/**
 * @param {string} text
 * @param {string} className
 * @param {Record<string, string | number>} place
 */
function words(text, className, place) {
  const node = shape("text", className, place);
  node.textContent = text;
  return node;
}

/**
 * @param {ReturnType<typeof rangeOf>} range
 * @param {FrontierScale} scale
 * @param {number} width
 * @param {string} axis
 */
function axes({ right, step, bottom, top, share }, { x, y }, width, axis) {
  const [left, end, floor] = [MARGIN.left, width - MARGIN.right, HEIGHT - MARGIN.bottom];
  const nodes = [];
  for (let value = bottom; value <= top; value += share)
    nodes.push(
      shape("path", "fv-gridline", { d: `M${left} ${y(value)}H${end}` }),
      words(String(value), "fv-tick", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }),
    );
  for (let value = 1; value <= right; value += step)
    nodes.push(words(String(value), "fv-tick", { x: x(value), y: floor + 18, "text-anchor": "middle" }));
  return [
    ...nodes,
    words("tokens per forward", "fv-axis", { x: (left + end) / 2, y: HEIGHT - 6, "text-anchor": "middle" }),
    words(axis, "fv-axis", {
      "text-anchor": "middle",
      transform: `translate(11 ${(MARGIN.top + floor) / 2}) rotate(-90)`,
    }),
  ];
}

/**
 * @param {FrontierMark[]} marks
 * @param {FrontierScale} scale
 */
function bestLine(marks, { x, y }) {
  const best = marks.filter(({ isBest }) => isBest).sort((a, b) => a.x - b.x);
  return shape("path", "fv-front", { d: best.map((each, i) => `${i ? "L" : "M"}${x(each.x)} ${y(each.y)}`).join("") });
}

/**
 * @param {PaperCurve} curve
 * @param {FrontierScale} scale
 * @param {number} width
 */
function curveShapes(curve, { x, y }, width) {
  const points = curve.points.map(({ tpf, accuracy }) => [x(tpf), y(accuracy)]);
  const [right, bottom] = lastOf(points);
  const label = `${curve.checkpoint}, ${curve.benchmark} (paper)`;
  const hasRoom = right + 8 + LETTER * label.length < width;
  const at = { y: bottom + (curve.benchmark === "GSM8K" ? -4 : 14), "text-anchor": hasRoom ? "start" : "end" };
  return [
    shape("path", "fv-curve", { d: points.map(([px, py], i) => `${i ? "L" : "M"}${px} ${py}`).join("") }),
    ...points.map(([cx, cy]) => shape("circle", "fv-paper", { cx, cy, r: 2.5 })),
    words(label, "fv-name", { x: hasRoom ? right + 8 : width, ...at }),
  ];
}

/**
 * The names of the best ways, those that have room, from the fastest on.
 * @param {FrontierMark[]} marks
 * @param {FrontierScale} scale
 * @param {number} width
 */
function namesOf(marks, { x, y }, width) {
  /** @type {{ left: number, right: number, at: number }[]} */
  const taken = [];
  const best = marks.filter(({ isBest }) => isBest).sort((a, b) => b.x - a.x);
  return best.flatMap((mark) => {
    const long = LETTER * mark.point.name.length;
    const hasRoom = x(mark.x) + 4 + long < width;
    const left = hasRoom ? x(mark.x) + 4 : width - long;
    const box = { left, right: left + long, at: Math.max(12, y(mark.high) - 14) };
    if (taken.some((each) => Math.abs(each.at - box.at) < LINE && each.left < box.right && each.right > box.left))
      return [];
    taken.push(box);
    const at = hasRoom ? { x: left, "text-anchor": "start" } : { x: width, "text-anchor": "end" };
    return [words(mark.point.name, "fv-way", { ...at, y: box.at })];
  });
}

/**
 * A ring where its quality is known, else a line at its tokens per forward.
 * @param {OwnMark} own
 * @param {FrontierScale} scale
 * @param {number} width
 */
function ownShapes({ x: tpf, y: share }, { x, y }, width) {
  const at = x(tpf);
  const isRight = at > width - 110;
  const isKnown = Number.isFinite(share);
  const place = { x: at + (isRight ? -12 : 12), y: isKnown ? y(share) + 20 : MARGIN.top + 12 };
  return [
    isKnown
      ? shape("circle", "fv-own", { cx: at, cy: y(share), r: 10 })
      : shape("path", "fv-own", { d: `M${at} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}` }),
    words("you are here", "fv-here", { ...place, "text-anchor": isRight ? "end" : "start" }),
  ];
}

/** The paper's block size that is drawn: the one most of our points have. */
const PAPER_BLOCK_SIZE = 4;

/**
 * The ways of a set as { x, y, low, high, isBest }: tokens per forward across, quality in percent up.
 * @param {FrontierSet} set
 * @returns {FrontierMark[]}
 */
export function marksOf(set) {
  const marks = set.points.map((point) => ({
    point,
    x: point.tpf.value,
    y: 100 * point.quality.value,
    low: 100 * point.quality.low,
    high: 100 * point.quality.high,
  }));
  const best = frontier(marks);
  return marks.map((mark) => ({ ...mark, isBest: best.includes(mark) }));
}

/**
 * The visitor's finished run: { x, y }, y NaN where its quality cannot be told: accuracy of one answer that nobody judges,
 * or no plain AR beside it. Null while there is none. A recorded run is not the visitor's.
 * @param {Run | undefined} run
 * @param {"accuracy" | "agreement"} quality
 * @returns {OwnMark | null}
 */
export function ownMark(run, quality) {
  if (!run || run.recorded) return null;
  const main = run.lanes.find((lane) => !lane.isAr) || run.lanes[0];
  if (!main || !isDone(main)) return null;
  const ar = run.lanes.find((lane) => lane !== main && lane.isAr);
  const { place, isSame } = ar && isDone(ar) ? parting(main, ar) : { place: -1, isSame: false };
  const isKnown = quality === "agreement" && (isSame || place >= 0);
  return { x: folds.perForward(main), y: isKnown ? (isSame ? 100 : 0) : NaN, place, isSame };
}

/**
 * @param {OwnMark | null} own
 * @param {"accuracy" | "agreement"} quality
 * @param {string} [elsewhere] the checkpoint of the run, where it is not the one on show
 */
export function ownWords(own, quality, elsewhere) {
  if (!own) return "Run something on the Live tab, and it stands here too.";
  const pace = `Your run${elsewhere ? ` on ${elsewhere}` : ""}: ${own.x.toFixed(2)} tokens per forward`;
  if (quality === "accuracy") return `${pace}; nobody judges one answer, so it is a line.`;
  if (own.isSame) return `${pace}, AR's own text.`;
  return own.place < 0
    ? `${pace}; no plain AR ran beside it.`
    : `${pace}, not AR's text from token ${own.place + 1} on.`;
}

/**
 * The paper's curves that are drawn beside accuracies.
 * @param {PaperCurves} paper
 */
export const curvesOf = (paper) => paper.curves.filter((curve) => curve.block_size === PAPER_BLOCK_SIZE);

/**
 * The ends of both axes.
 * @param {{ x: number, y: number }[]} marks
 */
export function rangeOf(marks) {
  const xs = marks.map(({ x }) => x).filter(Number.isFinite);
  const ys = marks.map(({ y }) => y).filter(Number.isFinite);
  const step = Math.max(...xs, 1.5) > 3 ? 1 : 0.5;
  const [low, high] = [Math.min(...ys), Math.max(...ys)];
  const share = high - low > 45 ? 20 : high - low > 20 ? 10 : 5;
  return {
    right: Math.ceil(Math.max(...xs, 1.5) / step + 0.1) * step,
    step,
    bottom: Math.max(0, Math.floor((low - 1) / share) * share),
    top: Math.min(100, Math.ceil((high + 1) / share) * share),
    share,
  };
}
