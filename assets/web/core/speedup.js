// How much faster one lane decodes than another, how far that number can be trusted, and both in words. Pure.
//
// The speedup is the ratio of their tokens per second of decoding: the prompt's prefill is left out of both, as it is
// of every clock on the page. What tokens a run writes another would write again; the time of its forwards it would
// not. So the range comes from how the time of a forward varies between parts of each run. Which of the two is faster
// is decided by it first; a wide range takes nothing back, it is said beside it.

import { folds } from "./folds.js";

export const DEFINITION =
  "Tokens per second of decoding over those of the other; reading the prompt is left out of both. The range is where 19 of 20 further runs should fall, judged by how the time of a pass varied in this one.";

const LEAST = 20; // tokens of either lane below which nothing is said
const PARTS = 8; // of a run, whose mean times are compared
const QUANTILES = [12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36]; // of Student's t at 95 %, for 1 to 7 degrees of freedom
const APART = 0.06; // relative: what two runs on a quiet machine differ by, however steady each of them was
const UNQUIET = 0.2; // uncertainty of the other lane, whose passes are alike: what is beyond is the machine's
const WIDE = 1.5; // upper over lower end of a range that calls for another run
const NEAR = 1.1; // times as fast or as slow: as far as "about" reaches where the range does not tell them apart
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
 * kind: none (nothing measured), short, faster or slower where all of the range is, same where 1 lies in it, capped
 * where all of it exceeds the limit.
 * @param {Timed} one
 * @param {Timed} other
 * @param {number} [limit]
 * @returns {Speedup}
 */
export function speedup(one, other, limit = Infinity) {
  /** @param {Timed} given */
  const rate = ({ tokens, seconds }) => tokens / seconds.reduce((sum, each) => sum + each, 0);
  const ratio = rate(one) / rate(other);
  if (!Number.isFinite(ratio)) return { kind: "none", ratio: NaN, low: NaN, high: NaN, limit, isBusy: false };
  const [own, others] = [uncertainty(one.seconds), uncertainty(other.seconds)];
  const margin = Math.hypot(own, others, APART);
  const [low, high] = [ratio * Math.exp(-margin), ratio * Math.exp(margin)];
  const isShort = Math.min(one.tokens, other.tokens) < LEAST || Number.isNaN(low);
  return { kind: isShort ? "short" : kindOf(low, high, limit), ratio, low, high, limit, isBusy: others > UNQUIET };
}

/** @type {(low: number, high: number, limit: number) => string} */
function kindOf(low, high, limit) {
  if (low > limit * SLACK) return "capped";
  if (low > 1) return "faster";
  return high < 1 ? "slower" : "same";
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
  /** @param {Lane} each */
  const whole = (each) => folds.tokens(each) / folds.forwards(each);
  const limit = other.isAr ? whole(lane) / whole(other) : Infinity;
  return speedup(measured(lane), measured(other), limit);
}

/**
 * The number, or the words in its place, and the words behind it.
 * @param {Speedup} given
 * @returns {[value: string, unit: string]}
 */
export function speedupParts(given) {
  const { kind, ratio, limit } = given;
  if (kind === "none") return ["–", ""];
  if (kind === "short") return ["too short to time", ""];
  if (kind === "capped" && limit > NEAR) return [`up to ${times(limit, given)}`, "times as fast"];
  if (kind === "capped" || (kind === "same" && Math.abs(Math.log(ratio)) < Math.log(NEAR)))
    return ["about as fast", ""];
  return kind === "slower" ? [`slower: ${times(ratio, given)}`, "times"] : [times(ratio, given), "times as fast"];
}

/**
 * "1.4 times as fast", "about as fast", "slower: 0.6 times".
 * @param {Speedup} given
 */
export const speedupText = (given) => speedupParts(given).filter(Boolean).join(" ");

/**
 * The same in a cell: "1.4×".
 * @param {Speedup} given
 */
export function speedupShort(given) {
  const { kind, ratio, limit } = given;
  if (kind === "none" || kind === "short") return speedupText(given);
  return kind === "capped" ? `≤ ${times(limit, given)}×` : `${times(ratio, given)}×`;
}

/**
 * The range, "1.2 to 1.6", or why there is none.
 * @param {Speedup} given
 */
export function speedupRange(given) {
  const { kind, low, high } = given;
  if (kind === "none") return "";
  return kind === "short" ? `needs ${LEAST} tokens in both` : `${times(low, given)} to ${times(high, given)}`;
}

/**
 * Why the range is no better, and what to do about it; nothing where it is narrow.
 * @param {Speedup} given
 */
export function speedupRemark({ kind, ratio, low, high, limit, isBusy }) {
  if (kind === "none" || kind === "short") return "";
  if (kind === "capped")
    return `${ratio.toFixed(1)} was timed, with only ${limit.toFixed(1)} times fewer passes: other work disturbed the other. Run it again`;
  if (high / low <= WIDE) return "";
  return isBusy ? "the machine was busy: run it again when it is quiet" : "its passes differ in length: a longer answer tells more"; // prettier-ignore
}

/**
 * "1.4 times as fast (1.2 to 1.6)", with the remark where there is one.
 * @param {Speedup} given
 */
export function speedupSentence(given) {
  const [range, remark] = [speedupRange(given), speedupRemark(given)];
  const said = range ? `${speedupText(given)} (${range})` : speedupText(given);
  return remark ? `${said}; ${remark}` : said;
}

/**
 * As many decimals as the range allows.
 * @type {(number: number, range: { low: number, high: number }) => string}
 */
function times(number, { low, high }) {
  if (number >= 10) return number.toFixed(high / low > WIDE ? 0 : 1);
  return number.toFixed(high / low < NEAR * NEAR || number < 0.2 ? 2 : 1);
}
