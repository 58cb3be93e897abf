// Compares the grid's cells with plain AR, finds the best cells, and computes the texts and heat map levels of cells.
// Pure; no DOM.

import { FINAL, divergence, folds, lastOf, loopRemark } from "../core/folds.js";
import { loopsAt } from "../core/loops.js";
import {
  UNKNOWN,
  isTimed,
  ofRounds,
  speedClause,
  speedupSentence,
  speedupShort,
  speedupText,
} from "../core/speedup.js";
import { capitalised, counted, figure, joined, short, whole } from "../core/words.js";
import { aligned } from "./diff.js";

const MOST_NAMED = 2; // maximum number of equally fast cells that a sentence names
export const NUM_LEVELS = 5; // steps of the heat map's colour ramp

/**
 * Compares a lane's text with AR's. place: index of the first different token, -1 if there is none so far. isSame:
 * whether both texts are complete and equal. A text that has ended differs from a text that continues, as in
 * first_divergence on the server.
 * @param {Lane} lane
 * @param {Lane} ar
 */
export function parting(lane, ar) {
  const place = divergence(lane, ar, 0);
  if (place >= 0) return { place, isSame: false };
  const [shorter, longer] = lane.tokens.length < ar.tokens.length ? [lane, ar] : [ar, lane];
  const isEnded = shorter.steps.length > 0 && lastOf(shorter.steps).stop === "eos";
  if (shorter.tokens.length < longer.tokens.length)
    return { place: isEnded ? shorter.tokens.length : -1, isSame: false };
  return { place: -1, isSame: isDone(lane) && isDone(ar) };
}

/** @param {Lane} lane */
export const isDone = (lane) => FINAL.has(lane.end?.reason ?? "");

/** @type {WeakMap<Lane, number>} */
const agreed = new WeakMap();

/**
 * Returns the share of tokens that a text and AR's text have in common, in the same order: 1 for equal texts, NaN
 * before both have ended.
 * @param {Lane} lane
 * @param {Lane} ar
 */
export function agreement(lane, ar) {
  if (!isDone(lane) || !isDone(ar)) return NaN;
  const known = agreed.get(lane) ?? shared(lane, ar) / Math.max(lane.tokens.length, ar.tokens.length);
  agreed.set(lane, known);
  return known;
}

/** @param {Lane[]} lanes */
function shared(...lanes) {
  const [first, second] = lanes.map((lane) => lane.ids);
  return aligned(first, second).reduce((sum, { kind, num }) => sum + (kind === "both" ? num : 0), 0);
}

/**
 * Returns the speed of a cell relative to AR's, measured over the rounds so far.
 * @param {Pick<Cell, "rounds">} cell
 * @returns {Speedup}
 */
const speedOf = ({ rounds }) => (rounds ? ofRounds(rounds) : UNKNOWN);

/** @type {Record<Measure, (cell: Cell, ar: Cell) => number>} */
export const MEASURES = {
  tpf: ({ lane }) => folds.perForward(lane),
  agreement: ({ lane }, ar) => agreement(lane, ar.lane),
  speed: (cell) => speedOf(cell).ratio,
};

/**
 * Returns the range of values that the colour ramp of the heat map covers. It always contains AR's value: 1 token per
 * pass, full agreement, or speed 1.
 * @param {Measure} measure
 * @param {number[]} values
 * @returns {[low: number, high: number]}
 */
export function rangeOf(measure, values) {
  const known = values.filter(Number.isFinite);
  if (measure === "agreement") return [Math.min(0.8, ...known), 1];
  if (measure === "tpf") return [1, Math.max(1.5, ...known)];
  return known.length ? [Math.min(1, ...known), Math.max(1, ...known)] : [1, 1];
}

/**
 * Returns the step of the colour ramp for a value, from 1 to NUM_LEVELS; 0 for NaN.
 * @param {number} value
 * @param {[low: number, high: number]} range
 */
export function levelOf(value, [low, high]) {
  if (!Number.isFinite(value)) return 0;
  const share = high > low ? (value - low) / (high - low) : 0;
  return Math.max(1, Math.min(NUM_LEVELS, 1 + Math.floor(share * NUM_LEVELS)));
}

/**
 * Returns the points that no other point dominates (is as high in both x and y and higher in one), sorted by x.
 * @template {{ x: number, y: number }} P
 * @param {P[]} points
 * @returns {P[]}
 */
export const frontier = (points) =>
  points
    .filter(({ x, y }) => !points.some((other) => other.x >= x && other.y >= y && (other.x > x || other.y > y)))
    .sort((a, b) => a.x - b.x);

/**
 * Returns the finished cell with the highest measured speed, except cells with a text that repeats itself; undefined if
 * there is none.
 * @param {Cell[]} cells
 * @returns {Cell | undefined}
 */
export const fastest = (cells) =>
  cells
    .filter((cell) => isDone(cell.lane) && loopsAt(cell.lane) < 0 && Number.isFinite(speedOf(cell).ratio))
    .sort((a, b) => speedOf(b).ratio - speedOf(a).ratio)[0];

/**
 * Returns the cells that are not measurably slower than the best one: their speed ranges overlap.
 * @param {Cell} best
 * @param {Cell[]} cells
 */
const asFast = (best, cells) =>
  cells.filter((cell) => cell !== best && loopsAt(cell.lane) < 0 && speedOf(cell).high >= speedOf(best).low);

/**
 * Returns sentences that name the fastest cell and the fastest cell that wrote the same text as AR; "" if no speed is
 * known.
 * @param {Cell[]} cells
 * @param {Cell} ar
 */
export function fastestSentence(cells, ar) {
  const best = fastest(cells);
  if (!best) return cells.some(({ rounds }) => rounds?.kind === "busy") ? NO_SPEED : "";
  /** @param {Cell[]} all */
  const describe = (all) => {
    const first = /** @type {Cell} */ (fastest(all));
    const near = asFast(first, all).map(cellName);
    const others = near.length > MOST_NAMED ? counted(near.length, "other cell") : near.join("; ");
    const more = near.length ? `; not measurably slower: ${others}` : "";
    return `${cellName(first)} (${speedupText(speedOf(first))}${more})`;
  };
  const same = cells.filter((cell) => parting(cell.lane, ar.lane).isSame);
  const fastestSame = fastest(same);
  if (fastestSame === best) return `Fastest: ${describe(cells)}, with the same text as AR.`;
  const second = fastestSame
    ? `Fastest with the same text as AR: ${describe(same)}.`
    : "No cell wrote the same text as AR.";
  return `Fastest: ${describe(cells)}. ${second}`;
}

/**
 * Returns the result of a grid in one sentence, in passes and time. The sentence is about the fastest cell that wrote the
 * same text as AR or, if no speed is known, the one with the fewest passes; lossless cells come first, because they
 * always write that text. Returns "" until plain AR and such a cell have ended, or all cells without such a text.
 * @param {Cell[]} cells
 * @param {Cell} ar
 */
export function gridFinding(cells, ar) {
  const done = cells.filter(({ lane }) => isDone(lane));
  if (!done.length || !isDone(ar.lane)) return "";
  const passes = (/** @type {Cell} */ { lane }) => folds.forwards(lane);
  const same = done.filter(({ lane }) => loopsAt(lane) < 0 && parting(lane, ar.lane).isSame);
  const exact = same.filter(({ row }) => row?.lossless);
  const candidates = exact.length ? exact : same;
  const best = fastest(candidates) ?? [...candidates].sort((a, b) => passes(a) - passes(b))[0];
  if (!best) return done.length === cells.length ? "No setting wrote the same text as AR." : "";
  return `${capitalised(cellName(best))}: the same text as AR in ${whole(passes(best))} passes instead of ${whole(passes(ar))}${speedClause(speedOf(best))}.`;
}

export const NO_SPEED = "The machine was busy. Run the grid again to measure speeds.";

/** @type {Record<string, string>} */
export const MARKS = { all: "★", row: "▲" };
/** @type {Record<string, string>} */
export const MARK_WORDS = { all: "fastest of all", row: "fastest of its row" };

/** @param {GridRow} given */
export const rowName = ({ tau, lossless }) => (lossless ? "lossless" : `τ ${short(tau)}`);

/** @param {Cell} cell */
export const cellName = (cell) => (cell.row ? `${rowName(cell.row)}, B ${cell.blockSize}` : "plain AR");

/** @param {Lane} lane */
export function stateOf(lane) {
  if (!lane.header) return "waiting";
  if (!lane.end) return "running";
  return isDone(lane) ? "done" : "stopped";
}

/**
 * Formats a share as a whole percentage, rounded down so that it is 100 only if nothing differs.
 * @param {number} share
 */
export const percent = (share) => (Number.isFinite(share) ? String(Math.floor(100 * share)) : "–");

const NOTHING = { tpf: "", agreement: "", ratio: "", speedup: "", range: "", speed: "", differs: "", kind: "" };

/**
 * @param {Cell} cell
 * @param {Cell} ar
 */
export function textsOf(cell, ar) {
  const { lane, row, rounds } = cell;
  if (!lane.steps.length) return NOTHING;
  const loops = loopsAt(lane) < 0 ? "" : "repeats itself";
  const shared = {
    tpf: figure(folds.perForward(lane)),
    speed: `${figure(rounds ? rounds.rate[0] : folds.perSecond(lane))} tok/s`,
  };
  if (!row)
    return {
      ...NOTHING,
      ...shared,
      agreement: "100",
      differs: joined(loops, "baseline"),
      kind: "reference",
    };
  const { place, isSame } = parting(lane, ar.lane);
  const speedup = speedOf(cell);
  const isReported = isTimed(speedup) || speedup.kind === "none";
  return {
    ...shared,
    speed: isReported ? shared.speed : "",
    agreement: percent(agreement(lane, ar.lane)),
    ratio: speedup.kind === "none" ? "" : speedupShort(speedup),
    speedup: speedup.kind,
    range: speedupSentence(speedup),
    differs: joined(loops, place >= 0 ? `differs at token ${whole(place + 1)}` : isSame ? "same text" : ""),
    kind: place >= 0 ? "differs" : isSame ? "same" : "",
  };
}

/**
 * Returns the description of a cell for screen readers.
 * @param {Cell} cell
 * @param {Cell} ar
 * @param {string} mark
 * @param {boolean} isOpened
 */
export function cellLabel(cell, ar, mark, isOpened) {
  const { lane } = cell;
  const texts = textsOf(cell, ar);
  const parts = [
    cellName(cell),
    stateOf(lane) === "waiting" ? "has not run yet" : "",
    texts.tpf && `${texts.tpf} tokens per pass`,
    loopRemark(lane),
    /\d/.test(texts.agreement) && cell.row ? `${texts.agreement} % agreement with AR` : "",
    texts.speed,
    texts.range,
    texts.differs,
    lane.verdict === null ? "" : lane.verdict ? "right" : "wrong",
    MARK_WORDS[mark],
    isOpened ? "shown below" : "",
  ];
  return parts.filter(Boolean).join(", ");
}
