// What two runs took, in words that can be compared: totals for the same text, else tokens per pass and per second. Pure.

import { folds } from "./folds.js";
import { counted, figure } from "./words.js";

/**
 * Whether two lanes that have ended wrote the same text.
 * @param {Lane} one
 * @param {Lane} other
 */
export const isSameText = (one, other) => Boolean(one.end && other.end) && one.ids.join() === other.ids.join();

/**
 * "56 passes", or "2.00 tokens per pass".
 * @param {Lane} lane
 * @param {boolean} isSame
 */
export const passesText = (lane, isSame) =>
  isSame ? counted(lane.steps.length, "pass", "passes") : `${figure(folds.perForward(lane))} tokens per pass`;

/**
 * "0.84 s", or "120 tokens per second".
 * @param {Lane} lane
 * @param {boolean} isSame
 */
export const timeText = (lane, isSame) =>
  isSame ? `${figure(lane.seconds)} s` : `${figure(folds.perSecond(lane))} tokens per second`;
