// The chart of the Frontier view as SVG: axes, the paper's curves, methods with their intervals, and the visitor's run.
// This file also contains the sentences about the results.

import { OUTLINES, frontierLine, lengthOf, lineThrough, markKeys, planeAxes, planeScale, takesRoom } from "./plane.js";
import { make, shape } from "../core/dom.js";
import { folds, lastOf } from "../core/folds.js";
import { loopText } from "../core/loops.js";
import { factsOf, isVerified } from "../core/methods.js";
import { capitalised, short } from "../core/words.js";
import { frontier, isDone, parting } from "../folds/grid.js";

const HEIGHT = 420;
const WIDEST = 760;
const MARGIN = { left: 46, right: 16, top: 30, bottom: 44 };

export const NO_RUN = "Runs from the Live tab appear here.";
export const NOT_COMPARED = "it was not compared with plain AR";
export const UNTIMED = "time was not measured on these prompts";
export const UNLISTED = "No listed method matches its settings.";

/** @param {Settings} settings */
export const kindOf = (settings) => (settings.method === "ar" ? "ar" : isVerified(settings) ? "lossless" : "tau");

export class Chart {
  /**
   * report.open: called with the point that the visitor presses. report.point: called with the point that the visitor
   * points at, or with null when the pointer leaves the points.
   * @param {HTMLElement} element
   * @param {{ open(point: FrontierPoint): void, point(point: FrontierPoint | null): void }} report
   * @param {Margin} [margin]
   */
  constructor(element, report, margin = MARGIN) {
    this.margin = margin;
    this.element = element;
    this.report = report;
    this.svg = shape("svg", { class: "fv-plot", height: HEIGHT });
    this.readout = make("figcaption", "fv-readout");
    this.keys = make("div");
    this.element.append(this.svg, this.readout, this.keys);
  }

  /** @param {FrontierPicture} picture */
  draw({ marks, own, curves, axis, across }) {
    const width = Math.min(WIDEST, this.element.clientWidth);
    if (!width) return;
    this.svg.setAttribute("width", String(width));
    this.keys.replaceChildren(markKeys(marks.map(({ point }) => kindOf(point.settings))));
    const paper = curves.flatMap(({ points }) => points.map(({ tpf, accuracy }) => ({ x: tpf, y: accuracy })));
    const ends = marks.flatMap(({ x, low, high }) => [low, high].map((y) => ({ x, y })));
    const range = rangeOf([...ends, ...paper, ...(own ? [own] : [])]);
    const { left, right, step, bottom, top, share } = range;
    const picture = { width, height: HEIGHT, margin: this.margin };
    const scale = planeScale(picture, [left, right], [bottom, top]);
    const labels = {
      ticks: valuesOf(1, right, step),
      shares: valuesOf(bottom, top, share),
      below: 18,
      title: axis,
      across,
    };
    const best = marks.filter(({ isBest }) => isBest).sort((a, b) => a.x - b.x);
    this.svg.replaceChildren(
      ...planeAxes(picture, scale, { prefix: "fv", ...labels }),
      ...curves.flatMap((curve) => curveShapes(curve, scale, width)),
      shape("path", { class: "fv-front", d: frontierLine(best, scale, picture) }),
      ...marks.map((mark) => this.markOf(mark, scale)),
      ...namesOf(
        best.toSorted((a, b) => b.x - a.x),
        scale,
        width,
      ),
      ...(own ? ownShapes(own, scale, width) : []),
    );
  }

  /**
   * @param {FrontierMark} mark
   * @param {PlaneScale} scale
   */
  markOf({ point, x, y, low, high, isBest }, scale) {
    const kind = kindOf(point.settings);
    const node = shape(
      "g",
      { class: "fv-point", "data-kind": kind, "data-best": isBest, "data-name": point.name },
      shape("title", "", `${point.name}: open as a run`),
      shape("path", { class: "fv-interval", d: `M${scale.x(x)} ${scale.y(low)}V${scale.y(high)}` }),
      shape("circle", { class: "fv-reach", cx: scale.x(x), cy: scale.y(y), r: 13 }),
      shape("path", { class: "fv-dot", d: OUTLINES[kind], transform: `translate(${scale.x(x)} ${scale.y(y)})` }),
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
 * @param {number} from
 * @param {number} to
 * @param {number} step
 * @returns {[value: number, text: string][]}
 */
function valuesOf(from, to, step) {
  /** @type {[number, string][]} */
  const values = [];
  for (let value = from; value <= to; value += step) values.push([value, String(value)]);
  return values;
}

/**
 * @param {PaperCurve} curve
 * @param {PlaneScale} scale
 * @param {number} width
 */
function curveShapes(curve, scale, width) {
  const points = curve.points.map(({ tpf, accuracy }) => ({ x: tpf, y: accuracy }));
  const [right, bottom] = [scale.x(lastOf(points).x), scale.y(lastOf(points).y)];
  const label = `${curve.checkpoint}, ${curve.benchmark} (paper)`;
  const fits = right + 8 + lengthOf(label) < width;
  const at = { y: bottom + (curve.benchmark === "GSM8K" ? -4 : 14), "text-anchor": fits ? "start" : "end" };
  return [
    shape("path", { class: "fv-curve", d: lineThrough(points, scale) }),
    ...points.map(({ x, y }) => shape("circle", { class: "fv-paper", cx: scale.x(x), cy: scale.y(y), r: 2.5 })),
    shape("text", { class: "fv-name", x: fits ? right + 8 : width, ...at }, label),
  ];
}

/**
 * Creates the labels of methods, in the given order. A label that would overlap an earlier one is left out.
 * @param {FrontierMark[]} marks
 * @param {PlaneScale} scale
 * @param {number} width
 */
function namesOf(marks, { x, y }, width) {
  /** @type {LabelBox[]} */
  const taken = [];
  return marks.flatMap((mark) => {
    const long = lengthOf(mark.point.name);
    const fits = x(mark.x) + 4 + long < width;
    const left = fits ? x(mark.x) + 4 : width - long;
    const box = { left, right: left + long, at: Math.max(12, y(mark.high) - 14) };
    if (!takesRoom(taken, box)) return [];
    const at = fits ? { x: left, "text-anchor": "start" } : { x: width, "text-anchor": "end" };
    return [shape("text", { class: "fv-way", ...at, y: box.at }, mark.point.name)];
  });
}

/**
 * Draws the visitor's run: a ring if its quality is known, otherwise a vertical line at its tokens per pass.
 * @param {OwnMark} own
 * @param {PlaneScale} scale
 * @param {number} width
 */
function ownShapes({ x: tpf, y: share }, { x, y }, width) {
  const at = x(tpf);
  const isRight = at > width - 110;
  const isKnown = Number.isFinite(share);
  const place = { x: at + (isRight ? -12 : 12), y: isKnown ? y(share) + 20 : MARGIN.top + 12 };
  return [
    isKnown
      ? shape("circle", { class: "fv-own", cx: at, cy: y(share), r: 10 })
      : shape("path", { class: "fv-own", d: `M${at} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}` }),
    shape("text", { class: "fv-here", ...place, "text-anchor": isRight ? "end" : "start" }, "you are here"),
  ];
}

const PAPER_BLOCK_SIZE = 4; // B of the paper's curves that are drawn; most measured methods have the same B

/**
 * Returns one point to draw for each method of a set. x: tokens per pass, or speed relative to AR's. y, low, high:
 * quality with its interval, in percent. isBest: whether no other method is better in both x and y.
 * @param {FrontierSet} set
 * @param {"tpf" | "speed"} [measure]
 * @returns {FrontierMark[]}
 */
export function marksOf(set, measure = "tpf") {
  const marks = set.points.map((point) => ({
    point,
    x: point[measure]?.value ?? NaN,
    y: 100 * point.quality.value,
    low: 100 * point.quality.low,
    high: 100 * point.quality.high,
  }));
  const best = frontier(marks);
  return marks.map((mark) => ({ ...mark, isBest: best.includes(mark) }));
}

/**
 * Returns the result of a set in one sentence: the method with the most tokens per pass at AR's quality.
 * @param {FrontierSet} set
 */
export function frontierFinding(set) {
  const ar = set.points.find(({ settings }) => settings.method === "ar");
  const [best] = set.points
    .filter(({ quality }) => quality.value >= (ar?.quality.value ?? 1))
    .sort((a, b) => b.tpf.value - a.tpf.value);
  if (!ar || !best || best === ar) return "No method wrote more tokens per forward pass at AR's quality.";
  const condition = set.quality === "agreement" ? "with the same answers as AR" : "at AR's accuracy";
  const passes = `${capitalised(best.name)}: ${best.tpf.value.toFixed(2)} tokens per forward pass instead of 1`;
  const speed = best.speed ? `, ${fastText(best.speed.value)}` : "";
  return `${passes}${speed}, ${condition}${best.speed ? "" : `; ${UNTIMED}`}.`;
}

/**
 * Describes a speed relative to AR's, averaged over prompts: "1.3 times as fast", "about as fast".
 * @param {number} ratio
 */
const fastText = (ratio) =>
  Math.abs(ratio - 1) < 0.05 ? "about as fast" : `${short(ratio, ratio < 1.1 ? 2 : 1)} times as fast`;

/**
 * Returns the point of the visitor's finished run, null if there is none; recordings do not count. y is NaN if the
 * quality is unknown: always for accuracy, and for agreement if plain AR did not run in the same race.
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
  return { x: folds.perForward(main), y: isKnown ? (isSame ? 100 : 0) : NaN, place, isSame, loop: loopText([main]) };
}

const DRAFTING = ["mask_layout", "lookup"]; // settings that have an effect only if drafts are verified

/**
 * Returns whether two runs with these settings decode in the same way. Settings without an effect on the method are
 * ignored.
 * @param {Settings} settings
 * @param {Settings} other
 */
export function isSameWay(settings, other) {
  const { obeys } = factsOf(settings);
  /** @param {keyof Settings} name */
  const isUsed = (name) =>
    (isVerified(settings) || !DRAFTING.includes(name)) &&
    (name !== "agreement_target" || settings.tau_policy === "agreement");
  const used = [...obeys.filter(isUsed), ...(obeys.length ? /** @type {(keyof Settings)[]} */ (["metric"]) : [])];
  return settings.method === other.method && used.every((name) => settings[name] === other[name]);
}

/**
 * Returns a sentence that names the method of the visitor's run, or says that the set does not contain it.
 * @param {FrontierSet} set
 * @param {Run | undefined} run
 */
export function wayWords({ points }, run) {
  const main = run?.lanes.find((lane) => !lane.isAr) || run?.lanes[0];
  const { settings, header } = main || {};
  if (!settings) return "";
  const way = points.find((point) => point.checkpoint === header?.checkpoint && isSameWay(point.settings, settings));
  return way ? `Matching method: ${way.name}.` : UNLISTED;
}

/**
 * @param {OwnMark | null} own
 * @param {"accuracy" | "agreement"} quality
 * @param {string} [elsewhere] the run's checkpoint, if it is not the checkpoint of the displayed set
 */
export function ownWords(own, quality, elsewhere) {
  if (!own) return NO_RUN;
  const run = `Your run${elsewhere ? ` on ${elsewhere}` : ""}`;
  const loop = own.loop && `${own.loop}. Up to that point: `;
  const pace = `${run}: ${loop}${own.x.toFixed(2)} tokens per forward pass`;
  if (quality === "accuracy")
    return `${pace}. A single answer has no accuracy, so the run is drawn as a vertical line.`;
  if (own.isSame) return `${pace}, the same text as AR.`;
  return own.place < 0 ? `${pace}; ${NOT_COMPARED}.` : `${pace}; its text differs from AR's at token ${own.place + 1}.`;
}

/**
 * Returns the paper's curves for a chart of accuracy.
 * @param {PaperCurves} paper
 */
export const curvesOf = (paper) => paper.curves.filter((curve) => curve.block_size === PAPER_BLOCK_SIZE);

/**
 * Returns the ranges and tick distances of both axes.
 * @param {{ x: number, y: number }[]} marks
 */
export function rangeOf(marks) {
  const xs = marks.map(({ x }) => x).filter(Number.isFinite);
  const ys = marks.map(({ y }) => y).filter(Number.isFinite);
  const step = Math.max(...xs, 1.5) > 3 ? 1 : 0.5;
  const [low, high] = [Math.min(...ys), Math.max(...ys)];
  const share = high - low > 45 ? 20 : high - low > 20 ? 10 : 5;
  return {
    left: Math.min(0.9, Math.floor(10 * Math.min(...xs, 1) - 0.5) / 10),
    right: Math.ceil(Math.max(...xs, 1.5) / step + 0.1) * step,
    step,
    bottom: Math.max(0, Math.floor((low - 1) / share) * share),
    top: Math.min(100, Math.ceil((high + 1) / share) * share),
    share,
  };
}
