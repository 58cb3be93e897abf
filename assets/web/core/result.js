// The costs of two runs in comparable words: totals for the same text, otherwise tokens per pass and per second. Pure.

import { folds } from "./folds.js";
import { upToLoop } from "./loops.js";
import { isTimed, laneSpeedup, speedupRange, speedupRemark, speedupText } from "./speedup.js";
import { counted, figure } from "./words.js";

/**
 * Whether two finished lanes have the same text, up to where it begins to repeat itself.
 * @param {Lane} one
 * @param {Lane} other
 */
export const isSameText = (one, other) =>
  Boolean(one.end && other.end) && upToLoop(one).ids.join() === upToLoop(other).ids.join();

/**
 * "56 passes", or "2.00 tokens per pass".
 * @param {Lane} lane
 * @param {boolean} isSame
 */
export const passesText = (lane, isSame) =>
  isSame ? counted(folds.forwards(lane), "pass", "passes") : `${figure(folds.perForward(lane))} tokens per pass`;

/**
 * "0.84 s", or "120 tokens per second".
 * @param {Lane} lane
 * @param {boolean} isSame
 */
export const timeText = (lane, isSame) =>
  isSame ? `${figure(folds.seconds(lane))} s` : `${figure(folds.perSecond(lane))} tokens per second`;

/**
 * Returns the measured time of one lane, or of two with the range of their ratio; empty until all have ended.
 * @param {Lane} main
 * @param {Lane | undefined} other
 */
export function secondsText(main, other) {
  if (!main.end || (other && !other.end)) return "";
  const isSame = !other || isSameText(main, other);
  const own = `measured: ${timeText(main, isSame)}`;
  if (!other) return own;
  const found = laneSpeedup(main, other);
  const first = isTimed(found) ? speedupRange(found) : found.kind === "none" ? "" : speedupText(found);
  const said = first && ` (${[first, speedupRemark(found)].filter(Boolean).join("; ")})`;
  return `${own}, ${other.title} ${isSame ? timeText(other, true) : figure(folds.perSecond(other))}${said}`;
}

const LEAST_STEPS = 8; // of both lanes, for a mean time of a pass

/**
 * Returns how many tokens per pass take as much time as plain AR: the ratio of the mean times of a pass, as measured in
 * this race. NaN before both lanes have enough passes.
 * @param {Lane} main
 * @param {Lane} ar
 */
export const breakEven = (main, ar) =>
  Math.min(main.steps.length, ar.steps.length) < LEAST_STEPS
    ? NaN
    : folds.secondsPerForward(main) / folds.secondsPerForward(ar);

/**
 * Reports the break-even of a finished race; empty without plain AR.
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
 * Warns if automatic B depends on the machine, so that another run may take a different number of passes.
 * @param {Lane} lane
 */
export const passesNote = ({ end, settings }) =>
  end && settings?.block_size === "auto" && settings.auto_objective !== "passes"
    ? "auto adapts to this machine, so the number of passes varies slightly between runs"
    : "";
