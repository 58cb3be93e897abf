// Pure: what a cell of the grid is beside plain AR, and which cells are the best. No DOM.

import { lastOf } from "../../core/lists.js";
import { short } from "../../core/words.js";
import { divergence, folds } from "../../core/folds.js";

/**
 * Where a text first differs from AR's: { place } where it does, { isSame } where both ended alike, neither where that is open.
 * As folds.first_divergence on the server: a text that ended by itself also differs where the other goes on.
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
export const isDone = (lane) => lane.end?.reason === "eos" || lane.end?.reason === "limit";

/**
 * Of cells that ran to their end, the one with the most tokens/s; undefined where there is none.
 * @param {Cell[]} cells
 * @returns {Cell | undefined}
 */
export function fastest(cells) {
  return cells
    .filter((cell) => isDone(cell.lane))
    .reduce(
      (best, cell) => (best && folds.perSecond(best.lane) >= folds.perSecond(cell.lane) ? best : cell),
      /** @type {Cell | undefined} */ (undefined),
    );
}

/** @param {GridRow} given */
export const rowName = ({ tau, lossless }) => (lossless ? "lossless" : `τ ${short(tau)}`);

/** @param {Cell} cell */
export const cellName = (cell) => (cell.row ? `${rowName(cell.row)}, B ${cell.blockSize}` : "plain AR");
