// Pure: what stands where in the chart. Measured ways, the visitor's own run, the paper's curves. No DOM.

import { folds } from "../../core/folds.js";
import { frontier, isDone, parting } from "../grid/folds.js";

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
