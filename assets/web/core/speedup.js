// How many times as fast one lane decodes as another, whether that can be reported, and both in words. Pure.
//
// The rule is `speedup` of mars_runtime/speedup.py. It is applied here because the browser chooses the two lanes and
// their forwards. The lanes' totals and spreads come from the server. Tested on the cases in tests/web/speedups.json.

import { folds } from "./folds.js";
import { upToLoop } from "./loops.js";
import { SPEED } from "./table.js";

export const DEFINITION =
  "Ratio of decoding speeds; processing the prompt is excluded. The range should contain 19 of 20 repeat runs, estimated from how much pass times varied.";

const UNQUIET = 0.2; // uncertainty of the baseline, whose passes are alike; above it the machine was busy
const WIDE = 1.5; // ratio of a range's ends above which another run is recommended

// Before anything was measured.
/** @type {Speedup} */
export const UNKNOWN = { kind: "none", ratio: NaN, low: NaN, high: NaN, limit: Infinity, isBusy: false, rounds: 1 };

/**
 * Compares two runs. limit: the ratio of passes.
 * @param {Timed} one
 * @param {Timed} other
 * @param {number} [limit]
 * @returns {Speedup}
 */
export function speedup(one, other, limit = Infinity) {
  const margin = Math.hypot(one.spread, other.spread, SPEED.apart);
  const ratio = rateOf(one) / rateOf(other) || NaN;
  const isShort = Math.min(one.tokens, other.tokens) < SPEED.least || Number.isNaN(margin);
  const found = judged(ratio, ratio * Math.exp(-margin), ratio * Math.exp(margin), limit, isShort);
  return { ...found, isBusy: other.spread > UNQUIET };
}

/** @param {Timed} given */
const rateOf = ({ tokens, seconds }) => tokens / seconds;

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
  const nothing = { ...UNKNOWN, limit };
  if (!Number.isFinite(ratio)) return nothing;
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
    seconds: folds.seconds(each),
    spread: upToLoop(each).steps.at(-1)?.spread ?? NaN,
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
  return kind === "slower" ? [slowerBy(ratio), "slower"] : [times(ratio, given), "times as fast"];
}

/**
 * "10 %", rounded up, so that the speed that remains is never above the measured one.
 * @param {number} ratio below 1
 */
const slowerBy = (ratio) => `${Math.ceil(100 * (1 - ratio) - 1e-9)} %`;

/** @param {Speedup} given */
const isAbout = ({ kind, ratio }) => kind === "same" && Math.abs(Math.log(ratio)) < Math.log(SPEED.near);

/**
 * "1.4 times as fast", "about as fast", "10 % slower".
 * @param {Speedup} given
 */
export const speedupText = (given) => speedupParts(given).filter(Boolean).join(" ");

/**
 * Whether there is a ratio to report.
 * @param {Speedup} given
 */
export const isTimed = ({ kind }) => !["none", "short", "busy"].includes(kind);

/**
 * The same for a table cell: "1.4×".
 * @param {Speedup} given
 */
export const speedupShort = (given) => (isTimed(given) ? `${times(given.ratio, given)}×` : speedupText(given));

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
