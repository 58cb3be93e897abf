// Compares the decoding speed of two lanes: how many times as fast one is, whether that ratio is certain enough to be
// reported, and the text for it. Pure; no DOM.
//
// The rule is the same as `speedup` in mars_runtime/speedup.py. The browser has to apply it itself, because the visitor
// chooses here which lanes and steps to compare. The lanes' totals and spreads come from the server. Both
// implementations are tested on the cases in tests/web/speedups.json.

import { folds } from "./folds.js";
import { upToLoop } from "./loops.js";
import { SPEED } from "./table.js";

export const DEFINITION =
  "Ratio of decoding speeds; processing the prompt is excluded. The range, estimated from how much pass times varied, should contain 19 of 20 repeat runs.";

const UNQUIET = 0.2; // spread of the baseline's pass times, normally all alike, above which the machine was busy
const WIDE = 1.5; // ratio of a range's ends above which another run is recommended

// The result before anything was measured.
/** @type {Speedup} */
export const UNKNOWN = { kind: "none", ratio: NaN, low: NaN, high: NaN, limit: Infinity, isBusy: false, rounds: 1 };

/**
 * Compares the speeds of two runs. limit: the highest possible ratio, such as the ratio of their tokens per pass.
 * @param {Timed} run
 * @param {Timed} baseline
 * @param {number} [limit]
 * @returns {Speedup}
 */
export function speedup(run, baseline, limit = Infinity) {
  const margin = Math.hypot(run.spread, baseline.spread, SPEED.apart);
  const ratio = rateOf(run) / rateOf(baseline) || NaN;
  const isShort = Math.min(run.tokens, baseline.tokens) < SPEED.least || Number.isNaN(margin);
  const result = judged(ratio, ratio * Math.exp(-margin), ratio * Math.exp(margin), limit, isShort);
  return { ...result, isBusy: baseline.spread > UNQUIET };
}

/** @param {Timed} given */
const rateOf = ({ tokens, seconds }) => tokens / seconds;

/**
 * Returns a Speedup from the comparison that the server computed over all rounds (mars_runtime/speedup.py, Rounds).
 * @param {RoundsLine} given
 * @returns {Speedup}
 */
export const ofRounds = ({ kind, ratio, low, high, limit, rounds }) => ({
  ...{ kind, ratio: ratio ?? NaN, low: low ?? NaN, high: high ?? NaN, limit: limit ?? Infinity, rounds },
  isBusy: kind === "busy",
});

/**
 * Decides how a measured ratio is reported. A ratio clearly above `limit`, which only a busy machine can cause, is not
 * reported; every reported ratio is at most `limit`. kind: "none" (nothing was measured), "short" (too few tokens),
 * "busy", "faster" or "slower" (the whole range is above or below 1), or "same" (the range contains 1).
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
 * Compares two lanes in their displayed state, counted until a text begins to repeat itself. If the other lane is plain
 * AR, the ratio of their tokens per pass is the limit.
 * @param {Lane} lane
 * @param {Lane} other
 * @returns {Speedup}
 */
export function laneSpeedup(lane, other) {
  /** @param {Lane} timed */
  const measured = (timed) => ({
    tokens: folds.tokens(timed),
    seconds: folds.seconds(timed),
    spread: upToLoop(timed).steps.at(-1)?.spread ?? NaN,
  });
  const limit = other.isAr ? folds.perForward(lane) / folds.perForward(other) : Infinity;
  return speedup(measured(lane), measured(other), limit);
}

/**
 * Returns a comparison as a value and a unit, such as ["1.4", "times as fast"]. If there is no number to show, the
 * value is a phrase and the unit is "".
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
 * Returns a slowdown such as "10 %". It is rounded up, so that the stated speed is never above the measured one.
 * @param {number} ratio below 1
 */
const slowerBy = (ratio) => `${Math.ceil(100 * (1 - ratio) - 1e-9)} %`;

/** @param {Speedup} given */
const isAbout = ({ kind, ratio }) => kind === "same" && Math.abs(Math.log(ratio)) < Math.log(SPEED.near);

/**
 * Returns a comparison in words: "1.4 times as fast", "about as fast", "10 % slower".
 * @param {Speedup} given
 */
export const speedupText = (given) => speedupParts(given).filter(Boolean).join(" ");

/**
 * Returns the end of a sentence: ", 1.4 times as fast", or why no speed is reported; "" before anything was measured.
 * @param {Speedup} given
 */
export function speedClause(given) {
  if (given.kind === "none") return "";
  if (given.kind === "busy") return "; the machine was too busy to time";
  return `${given.kind === "short" ? "; " : ", "}${speedupText(given)}`;
}

/**
 * Returns whether a comparison has a ratio to report.
 * @param {Speedup} given
 */
export const isTimed = ({ kind }) => !["none", "short", "busy"].includes(kind);

/**
 * Returns a comparison for a table cell, such as "1.4×".
 * @param {Speedup} given
 */
export const speedupShort = (given) => (isTimed(given) ? `${times(given.ratio, given)}×` : speedupText(given));

/**
 * Returns the range of a ratio, such as "1.2 to 1.6". For texts that are too short, names the number of tokens that a
 * comparison needs. Returns "" if nothing was measured or the machine was busy.
 * @param {Speedup} given
 */
export function speedupRange(given) {
  const { kind, low, high, rounds } = given;
  if (kind === "none" || kind === "busy") return "";
  if (kind === "short") return `needs at least ${SPEED.least} tokens in both texts`;
  const range = `${times(low, given)} to ${times(high, given)}`;
  return rounds > 1 ? `median of ${rounds} rounds, ${range}` : range;
}

/**
 * Returns why a busy machine prevented a ratio, or why the range is wide, and what to do; empty for a narrow range.
 * @param {Speedup} given
 */
export function speedupRemark({ kind, low, high, isBusy, rounds }) {
  if (kind === "none" || kind === "short") return "";
  if (kind === "busy") return SPEED.notes.busy;
  if (high / low <= WIDE) return "";
  if (isBusy || rounds > 1) return SPEED.notes.busy;
  return "pass times varied: a longer answer gives a more reliable ratio";
}

/**
 * Returns a comparison with its range and remark, such as "1.4 times as fast (1.2 to 1.6)".
 * @param {Speedup} given
 */
export function speedupSentence(given) {
  const [range, remark] = [speedupRange(given), speedupRemark(given)];
  const text = range ? `${speedupText(given)} (${range})` : speedupText(given);
  return remark ? `${text}; ${remark}` : text;
}

/**
 * Formats a ratio with as many decimals as the width of its range justifies, and never rounds it above the limit.
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
