// Texts that compare the costs of two runs: totals if both wrote the same text, otherwise tokens per pass and tokens
// per second. Pure; no DOM.

import { folds } from "./folds.js";
import { upToLoop } from "./loops.js";
import { isTimed, laneSpeedup, speedupRange, speedupRemark } from "./speedup.js";
import { counted, figure } from "./words.js";

/**
 * Returns whether two lanes have finished with the same text, compared up to where it begins to repeat itself.
 * @param {Lane} lane
 * @param {Lane} other
 */
export const isSameText = (lane, other) =>
  Boolean(lane.end && other.end) && upToLoop(lane).ids.join() === upToLoop(other).ids.join();

/**
 * Returns "56 passes" if the compared texts are the same, otherwise "2.00 tokens per pass".
 * @param {Lane} lane
 * @param {boolean} isSame
 */
export const passesText = (lane, isSame) =>
  isSame ? counted(folds.forwards(lane), "pass", "passes") : `${figure(folds.perForward(lane))} tokens per pass`;

/**
 * Returns "0.84 s" if the compared texts are the same, otherwise "120 tokens per second".
 * @param {Lane} lane
 * @param {boolean} isSame
 */
export const timeText = (lane, isSame) =>
  isSame ? `${figure(folds.seconds(lane))} s` : `${figure(folds.perSecond(lane))} tokens per second`;

/**
 * Returns the measured time of a lane and, if there is another lane, its time and the range of their speed ratio. Empty
 * until all lanes have ended. The headline contains the ratio itself, or the reason why there is no ratio.
 * @param {Lane} main
 * @param {Lane | undefined} other
 */
export function secondsText(main, other) {
  if (!main.end || (other && !other.end)) return "";
  const isSame = !other || isSameText(main, other);
  const mainText = `measured: ${timeText(main, isSame)}`;
  if (!other) return mainText;
  const ratio = laneSpeedup(main, other);
  const range = speedupRange(ratio);
  const remarks = [isTimed(ratio) ? `${range} times as fast` : range, speedupRemark(ratio)].filter(Boolean);
  const ratioText = remarks.length ? ` (${remarks.join("; ")})` : "";
  return `${mainText}, ${other.title} ${isSame ? timeText(other, true) : figure(folds.perSecond(other))}${ratioText}`;
}

const LEAST_STEPS = 8; // steps that each lane needs before its mean pass time is used

/**
 * Returns the break-even: the number of tokens per pass at which a lane is as fast as plain AR. It is the ratio of
 * their mean pass times in this race; NaN before both lanes have enough steps.
 * @param {Lane} main
 * @param {Lane} ar
 */
export const breakEven = (main, ar) =>
  Math.min(main.steps.length, ar.steps.length) < LEAST_STEPS
    ? NaN
    : folds.secondsPerForward(main) / folds.secondsPerForward(ar);

/**
 * Returns a lane's tokens per pass with the break-even; empty before the race has ended or without a plain AR lane.
 * @param {Lane} main
 * @param {Lane | undefined} ar
 */
export function breakEvenText(main, ar) {
  const even = ar?.isAr && main.end && ar.end ? breakEven(main, ar) : NaN;
  return Number.isFinite(even)
    ? `${figure(folds.perForward(main))} tokens per pass (break-even here: ${figure(even)})`
    : "";
}

/**
 * Returns a note that the number of passes varies between runs, if automatic B of a finished lane depended on the
 * machine; otherwise "".
 * @param {Lane} lane
 */
export const passesNote = ({ end, settings }) =>
  end && settings?.block_size === "auto" && settings.auto_objective !== "passes"
    ? "auto adapts to this machine, so the number of passes varies slightly between runs"
    : "";
