// Pure: cells of the grid in words. No DOM.

import { figure, short, whole } from "../../core/words.js";
import { laneSpeedup, speedupRemark, speedupText } from "../../core/speedup.js";
import { folds } from "../../core/folds.js";
import { agreement, isDone, parting } from "./folds.js";

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
 * A share that is 100 % only where nothing differs.
 * @param {number} share
 */
export const percent = (share) => (Number.isFinite(share) ? String(Math.floor(100 * share)) : "–");

const NOTHING = { tpf: "", agreement: "", ratio: "", speedup: "", range: "", speed: "", differs: "", kind: "" };

/**
 * What stands in a cell.
 * @param {Cell} cell
 * @param {Cell} ar
 */
export function textsOf({ lane, row }, ar) {
  if (!lane.steps.length) return NOTHING;
  const shared = { tpf: figure(folds.perForward(lane)), speed: `${figure(folds.perSecond(lane))} tok/s` };
  if (!row)
    return { ...NOTHING, ...shared, agreement: "100", differs: "what the cells are held against", kind: "reference" };
  const { place, isSame } = parting(lane, ar.lane);
  const speedup = laneSpeedup(lane, ar.lane);
  return {
    ...shared,
    agreement: percent(agreement(lane, ar.lane)),
    ratio: speedupText(speedup),
    speedup: speedup.kind,
    range: speedupRemark(speedup),
    differs: place >= 0 ? `differs from token ${whole(place + 1)}` : isSame ? "same text" : "",
    kind: place >= 0 ? "differs" : isSame ? "same" : "",
  };
}

/**
 * A cell as it is read aloud.
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
    texts.tpf && `${texts.tpf} tokens per forward`,
    /\d/.test(texts.agreement) && cell.row ? `${texts.agreement} % agreement with AR` : "",
    texts.speed,
    texts.ratio && `speedup over plain AR ${texts.ratio}`,
    texts.differs,
    lane.verdict === null ? "" : lane.verdict ? "right" : "wrong",
    MARK_WORDS[mark],
    isOpened ? "shown below" : "",
  ];
  return parts.filter(Boolean).join(", ");
}
