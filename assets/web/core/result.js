// What two runs took, in words that can be compared: totals for the same text, else tokens per pass and per second. Pure.

import { folds } from "./folds.js";
import { upToLoop } from "./loops.js";
import { laneSpeedup, speedupRemark, speedupText } from "./speedup.js";
import { counted, figure } from "./words.js";

/**
 * Whether two lanes that have ended wrote the same text, up to where it begins to repeat itself.
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
 * The measured time of one lane, or of two compared; empty until all have ended.
 * @param {Lane} main
 * @param {Lane | undefined} other
 */
export function secondsText(main, other) {
  if (!main.end || (other && !other.end)) return "";
  const isSame = !other || isSameText(main, other);
  const own = `As measured: ${timeText(main, isSame)}`;
  if (!other) return `${own}.`;
  const found = laneSpeedup(main, other);
  const said =
    found.kind === "none" ? "" : [`: ${speedupText(found)}`, speedupRemark(found)].filter(Boolean).join("; ");
  return `${own}, ${other.title} ${isSame ? timeText(other, true) : figure(folds.perSecond(other))}${said}.`;
}

/**
 * What the number of passes is worth: where auto follows the machine, another run may take more or fewer.
 * @param {Lane} lane
 */
export const passesNote = ({ end, settings }) =>
  end && settings?.block_size === "auto" && settings.aim !== "passes"
    ? "auto follows this machine, so passes differ a little from run to run"
    : "";
