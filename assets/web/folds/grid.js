// Compares the cells of a grid with plain AR. Pure; no DOM.

import { FINAL, divergence, folds, lastOf, loopRemark } from "../core/folds.js";
import { loopsAt } from "../core/loops.js";
import { ofRounds, speedupSentence } from "../core/speedup.js";
import { capitalised, figure, short, whole } from "../core/words.js";

/**
 * Compares a lane's text with AR's. place: index of the first different token, -1 if there is none so far. isSame:
 * whether both texts are complete and equal. A text that has ended differs from a text that continues, as in
 * first_divergence on the server.
 * @param {Lane} lane @param {Lane} ar
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

export const AGREEMENT = "Agreement: the share of the text before its first difference from AR's.";

/**
 * Returns the share of a text before its first difference from AR's; NaN before both have ended.
 * @param {Lane} lane @param {Lane} ar
 */
export function agreement(lane, ar) {
  if (!isDone(lane) || !isDone(ar)) return NaN;
  const { place } = parting(lane, ar);
  return place < 0 ? 1 : place / Math.max(lane.tokens.length, ar.tokens.length);
}

/**
 * Formats a share as a whole percentage, rounded down so that it is 100 only if nothing differs.
 * @param {number} share
 */
export const percent = (share) => (Number.isFinite(share) ? `${Math.floor(100 * share)} %` : "–");

const NUM_SHOWN = 6; // tokens of the first difference that are shown

/** @param {Lane} lane @param {number} place */
function wordsAt(lane, place) {
  const tokens = lane.tokens.slice(place, place + NUM_SHOWN);
  const text = tokens.map((token) => token.text).join("");
  return text.trim() ? `“${text.replace(/\s+/g, " ").trim()}”` : "the end of the text";
}

/**
 * Returns the first words of a text that differ from AR's, and AR's words at this place.
 * @param {Lane} lane @param {Lane} ar
 */
export function differenceLines(lane, ar) {
  const { place, isSame } = parting(lane, ar);
  if (place < 0) return isSame ? ["same text as AR"] : [];
  return [`differs at token ${whole(place + 1)}: ${wordsAt(lane, place)}`, `AR: ${wordsAt(ar, place)}`];
}

/** @param {GridRow} row */
export const rowName = ({ tau, lossless }) => (lossless ? "lossless" : `τ ${short(tau)}`);

/** @type {Record<string, string>} */
const REFERENCES = { ar: "AR", lookup: "AR + lookup" };

/** @param {Pick<Cell, "name" | "row" | "blockSize">} cell */
export const cellName = ({ name, row, blockSize }) => (row ? `${rowName(row)}, B ${blockSize}` : REFERENCES[name]);

/** Returns the description of a cell, as lines. @param {Cell} cell @param {Cell} ar */
export function cellLines(cell, ar) {
  const { lane, rounds } = cell;
  if (!lane.steps.length) return [cellName(cell), "has not run yet"];
  const loop = loopRemark(lane);
  const what = parting(lane, ar.lane).isSame ? "as fast" : "AR’s tokens per second"; // of another text
  const speed = rounds && cell !== ar ? speedupSentence(ofRounds(rounds), what) : "";
  const share = agreement(lane, ar.lane);
  return [
    cellName(cell),
    `${figure(folds.perForward(lane))} tokens per pass${loop && `, ${loop}`}`,
    ...(cell === ar ? [] : [speed, Number.isNaN(share) ? "" : `${percent(share)} agreement with AR`]),
    ...(cell === ar ? [] : differenceLines(lane, ar.lane)),
  ].filter(Boolean);
}

/**
 * Returns a cell's position on the horizontal axis: its tokens per pass, or its speed relative to AR with its range,
 * also if the range contains 1. NaN if it is unknown.
 * @param {Cell} cell @param {boolean} isSpeed
 */
export function acrossOf({ name, lane, rounds }, isSpeed) {
  const exact = isSpeed ? (name === "ar" ? 1 : NaN) : folds.perForward(lane);
  if (!isSpeed || name === "ar" || !rounds) return { value: exact, low: exact, high: exact };
  const { ratio, low, high } = ofRounds(rounds);
  return { value: ratio, low, high };
}

/**
 * Returns the result of a grid in one sentence: the setting that wrote AR's text in the fewest passes. Lossless cells
 * come first, because they always write that text. Returns "" until AR and such a cell have ended.
 * @param {Cell[]} cells @param {Cell} ar
 */
export function gridFinding(cells, ar) {
  const done = cells.filter(({ lane }) => isDone(lane));
  if (!done.length || !isDone(ar.lane)) return "";
  const passes = (/** @type {Cell} */ { lane }) => folds.forwards(lane);
  const same = done.filter(({ lane }) => loopsAt(lane) < 0 && parting(lane, ar.lane).isSame);
  const exact = same.filter(({ row }) => row?.lossless);
  const [best] = (exact.length ? exact : same).sort((a, b) => passes(a) - passes(b));
  if (!best) return done.length === cells.length ? "No setting wrote the same text as AR." : "";
  return `${capitalised(cellName(best))}: ${whole(passes(best))} passes instead of ${whole(passes(ar))}, same text.`;
}
