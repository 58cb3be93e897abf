// How much faster one lane decodes than another, and how far that number can be trusted. Pure.
//
// The speedup is the ratio of their tokens per second of decoding: the prompt's prefill is left out of both, as it is
// of every clock on the page. What tokens a run writes a repeat would write again; the time of its forwards it would
// not. So the interval comes from how the time of a forward varies between parts of each run.

import { counted, figure } from "./words.js";
import { folds } from "./folds.js";

export const DEFINITION =
  "Tokens per second of decoding over those of the other; reading the prompt is left out of both. The range is where 19 of 20 repeats would fall.";

const LEAST = 20; // tokens of either lane below which nothing is said
const PARTS = 8; // of a run, whose mean times are compared
const QUANTILES = [12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36]; // of Student's t at 95 %, for 1 to 7 degrees of freedom
const WIDEST = 1.5; // upper over lower end of an interval that still says something
const ONE = 0.995; // what is written as 1.00 is not called slower
const SLACK = 1.02; // beyond what the forwards saved can bring

/**
 * Relative half width of the interval of a lane's seconds per forward; NaN for fewer than two forwards.
 * @param {number[]} seconds
 */
function uncertainty(seconds) {
  const num = Math.min(PARTS, seconds.length);
  if (num < 2) return NaN;
  const means = Array.from({ length: num }, (_, i) =>
    mean(seconds.slice(Math.floor((i * seconds.length) / num), Math.floor(((i + 1) * seconds.length) / num))),
  );
  const centre = mean(means);
  const variance = means.reduce((sum, each) => sum + (each - centre) ** 2, 0) / (num - 1);
  return (QUANTILES[num - 2] * Math.sqrt(variance / num)) / centre;
}

/** @param {number[]} values */
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/**
 * measured: { tokens, seconds } with the seconds of each forward. limit: the speedup that the saved forwards allow.
 * kind: none (nothing measured), short, noisy, faster where all of the interval is, slower, or same.
 * @param {Timed} one
 * @param {Timed} other
 * @param {number} [limit]
 * @returns {Speedup}
 */
export function speedup(one, other, limit = Infinity) {
  /** @param {Timed} given */
  const rate = ({ tokens, seconds }) => tokens / seconds.reduce((sum, each) => sum + each, 0);
  const ratio = rate(one) / rate(other);
  if (!Number.isFinite(ratio)) return { kind: "none", ratio: NaN, low: NaN, high: NaN, limit };
  const margin = Math.hypot(uncertainty(one.seconds), uncertainty(other.seconds));
  const [low, high] = [ratio * Math.exp(-margin), ratio * Math.exp(margin)];
  const found = { ratio, low, high, limit };
  return { ...found, kind: kindOf({ ...found, tokens: Math.min(one.tokens, other.tokens) }) };
}

/** @param {{ ratio: number, low: number, high: number, limit: number, tokens: number }} given */
function kindOf({ ratio, low, high, limit, tokens }) {
  if (tokens < LEAST || Number.isNaN(low)) return "short";
  if (high / low > WIDEST || low > limit * SLACK) return "noisy";
  if (low > 1) return "faster";
  return ratio < ONE ? "slower" : "same";
}

/**
 * Of a lane of MARS over plain AR, as far as both are shown. A forward of MARS feeds what AR's does and its masks, so
 * it takes no less time: what exceeds the forwards saved is a disturbance.
 * @param {Lane} lane
 * @param {Lane} other
 * @returns {Speedup}
 */
export function laneSpeedup(lane, other) {
  /** @param {Lane} each */
  const measured = (each) => ({ tokens: folds.tokens(each), seconds: each.steps.map((step) => step.seconds) });
  const limit = other.isAr ? folds.perForward(lane) / folds.perForward(other) : Infinity;
  return speedup(measured(lane), measured(other), limit);
}

/**
 * The number or the word in its place.
 * @param {{ kind: string, ratio: number }} given
 */
export function speedupText({ kind, ratio }) {
  if (kind === "none") return "–";
  if (kind === "short") return "too short to time";
  return kind === "noisy" ? "noisy" : `${figure(ratio)}×`;
}

/**
 * What belongs beneath it: the range, or why there is no number.
 * @param {Speedup} given
 */
export function speedupRemark({ kind, ratio, low, high, limit }) {
  if (kind === "none") return "";
  if (kind === "short") return `under ${counted(LEAST, "token")}`;
  if (kind === "noisy" && low > limit * SLACK)
    return `${figure(ratio)}×, but only ${figure(limit)} times fewer forwards`;
  return `${figure(low)} to ${figure(high)} in repeats`;
}
