// How many times as fast one lane decodes as another, whether that can be reported, and both in words. Pure.
//
// The same function as mars_runtime/speedup.py, for runs that only the browser has: the ratio of tokens per second of
// decoding, at most the ratio of passes. Both are tested on the cases in tests/web/speedups.json.

import { folds } from "./folds.js";
import { upToLoop } from "./loops.js";
import { SPEED } from "./table.js";

export const DEFINITION =
  "Tokens per second of decoding, divided by the other's; reading the prompt is left out of both. The range is where 19 of 20 further runs should fall, judged by how the time per pass varied in this one.";

const UNQUIET = 0.2; // uncertainty of the baseline, whose passes are alike; above it the machine was busy
const WIDE = 1.5; // ratio of a range's ends above which another run is recommended

/** @param {number[]} values */
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** @param {number[]} values */
export const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};

/**
 * Returns the relative half width of the interval of a lane's seconds per pass; NaN for fewer than two passes.
 * @param {number[]} seconds
 */
function uncertainty(seconds) {
  const num = Math.min(SPEED.parts, seconds.length);
  if (num < 2) return NaN;
  const means = Array.from({ length: num }, (_, i) =>
    mean(seconds.slice(Math.floor((i * seconds.length) / num), Math.floor(((i + 1) * seconds.length) / num))),
  );
  const centre = mean(means);
  const variance = means.reduce((sum, each) => sum + (each - centre) ** 2, 0) / (num - 1);
  return (SPEED.studentT[num - 2] * Math.sqrt(variance / num)) / centre;
}

/**
 * Compares two runs by the seconds of their passes. limit: the ratio of passes.
 * @param {Timed} one
 * @param {Timed} other
 * @param {number} [limit]
 * @returns {Speedup}
 */
export function speedup(one, other, limit = Infinity) {
  const [own, others] = [uncertainty(one.seconds), uncertainty(other.seconds)];
  const margin = Math.hypot(own, others, SPEED.apart);
  const ratio = rateOf(one) / rateOf(other) || NaN;
  const isShort = Math.min(one.tokens, other.tokens) < SPEED.least || Number.isNaN(margin);
  const found = judged(ratio, ratio * Math.exp(-margin), ratio * Math.exp(margin), limit, isShort);
  return { ...found, isBusy: others > UNQUIET };
}

/** @param {Timed} given */
const rateOf = ({ tokens, seconds }) => tokens / seconds.reduce((sum, each) => sum + each, 0);

/**
 * Compares two methods by rounds of [ratio, limit]: the median, with the spread as its range.
 * @param {[ratio: number, limit: number][]} rounds
 * @param {boolean} [isShort]
 * @returns {Speedup}
 */
export function repeated(rounds, isShort = false) {
  const ratios = rounds.map(([ratio]) => ratio);
  if (!ratios.every(Number.isFinite) || !ratios.length) return judged(NaN, NaN, NaN, Infinity, isShort);
  const limit = median(rounds.map(([, each]) => each));
  return { ...judged(median(ratios), Math.min(...ratios), Math.max(...ratios), limit, isShort), rounds: ratios.length };
}

/**
 * Returns the comparison over rounds that the server computed (mars_runtime/speedup.py, Rounds).
 * @param {RoundsLine} given
 * @returns {Speedup}
 */
export const ofRounds = ({ kind, ratio, low, high, limit, rounds }) => ({
  ...{ kind, ratio: ratio ?? NaN, low: low ?? NaN, high: high ?? NaN, limit: limit ?? Infinity, rounds },
  isBusy: kind === "busy",
});

/**
 * Decides what is reported of a measured ratio. A ratio above `limit` is never reported: the machine was busy. kind:
 * none (nothing measured), short, busy; faster or slower if the whole range is on that side of 1; otherwise same.
 * @param {number} ratio
 * @param {number} low
 * @param {number} high
 * @param {number} limit
 * @param {boolean} isShort
 * @returns {Speedup}
 */
function judged(ratio, low, high, limit, isShort) {
  const nothing = { ratio: NaN, low: NaN, high: NaN, limit, isBusy: false, rounds: 1 };
  if (!Number.isFinite(ratio)) return { ...nothing, kind: "none" };
  if (isShort) return { ...nothing, kind: "short" };
  const isNear = ratio < SPEED.near && ratio <= limit * SPEED.near;
  if (ratio > limit * SPEED.slack && !isNear) return { ...nothing, kind: "busy", isBusy: true };
  /** @param {number} value */
  const cut = (value) => Math.min(value, limit);
  const kind = cut(low) > 1 ? "faster" : cut(high) < 1 ? "slower" : "same";
  return { ...nothing, kind, ratio: cut(ratio), low: cut(low), high: cut(high) };
}

/**
 * Compares two lanes in their displayed state, until a text begins to repeat itself. If the other is AR, the ratio of
 * passes is the limit.
 * @param {Lane} lane
 * @param {Lane} other
 * @returns {Speedup}
 */
export function laneSpeedup(lane, other) {
  /** @param {Lane} each */
  const measured = (each) => ({
    tokens: folds.tokens(each),
    seconds: upToLoop(each).steps.map((step) => step.seconds),
  });
  /** @param {Lane} each */
  const perPass = (each) => folds.tokens(each) / folds.forwards(each);
  return speedup(measured(lane), measured(other), other.isAr ? perPass(lane) / perPass(other) : Infinity);
}

/**
 * Returns the number, or words in its place, and the words after it.
 * @param {Speedup} given
 * @returns {[value: string, unit: string]}
 */
export function speedupParts(given) {
  const { kind, ratio } = given;
  if (kind === "none") return ["–", ""];
  if (kind === "short") return ["too short to time", ""];
  if (kind === "busy") return ["not measured", ""];
  if (isAbout(given)) return ["about as fast", ""];
  return kind === "slower" ? [`slower: ${times(ratio, given)}`, "times"] : [times(ratio, given), "times as fast"];
}

/** @param {Speedup} given */
const isAbout = ({ kind, ratio }) => kind === "same" && Math.abs(Math.log(ratio)) < Math.log(SPEED.near);

/**
 * "1.4 times as fast", "about as fast", "slower: 0.6 times".
 * @param {Speedup} given
 */
export const speedupText = (given) => speedupParts(given).filter(Boolean).join(" ");

/**
 * The same for a table cell: "1.4×".
 * @param {Speedup} given
 */
export function speedupShort(given) {
  const { kind, ratio } = given;
  return ["none", "short", "busy"].includes(kind) ? speedupText(given) : `${times(ratio, given)}×`;
}

/**
 * "1.2 to 1.6", or why there is no range.
 * @param {Speedup} given
 */
export function speedupRange(given) {
  const { kind, low, high, rounds } = given;
  if (kind === "none" || kind === "busy") return "";
  if (kind === "short") return `needs ${SPEED.least} tokens in both`;
  const range = `${times(low, given)} to ${times(high, given)}`;
  return rounds > 1 ? `median of ${rounds}, ${range}` : range;
}

/**
 * Explains why there is no ratio or why its range is wide, and what to do; empty if it is narrow.
 * @param {Speedup} given
 */
export function speedupRemark({ kind, low, high, isBusy, rounds }) {
  if (kind === "none" || kind === "short") return "";
  if (kind === "busy") return SPEED.notes.busy;
  if (high / low <= WIDE) return "";
  if (isBusy || rounds > 1) return SPEED.notes.busy;
  return "pass times varied: a longer answer is more reliable";
}

/**
 * "1.4 times as fast (1.2 to 1.6)", with the explanation if there is one.
 * @param {Speedup} given
 */
export function speedupSentence(given) {
  const [range, remark] = [speedupRange(given), speedupRemark(given)];
  const said = range ? `${speedupText(given)} (${range})` : speedupText(given);
  return remark ? `${said}; ${remark}` : said;
}

/**
 * Rounds to as many decimals as the range allows, and never above the limit.
 * @type {(number: number, range: { low: number, high: number, limit: number }) => string}
 */
function times(number, { low, high, limit }) {
  const decimals =
    number >= 10 ? (high / low > WIDE ? 0 : 1) : high / low < SPEED.near * SPEED.near || number < 0.2 ? 2 : 1;
  const shown = number.toFixed(decimals);
  if (Number(shown) <= limit) return shown;
  const unit = 10 ** decimals;
  return (Math.floor(number * unit) / unit).toFixed(decimals);
}
