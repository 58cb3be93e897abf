// Compares the decoding speed of two lanes: how many times as fast one is, whether that factor can be reported, and its
// text. Pure; no DOM. The rule is the same as in mars_runtime/runs/speedup.py, because the visitor chooses here which steps to
// compare. Both are tested on the cases in tests/web/speedups.json.

import { FINAL, divergence, folds } from "./folds.js";
import { upToLoop } from "./loops.js";
import { SPEED } from "./table.js";

export const DEFINITION =
  "ratio of decoding speeds; processing the prompt is excluded. The range, estimated from how much pass times varied, should contain 19 of 20 repeat runs.";

const WIDE = 1.5; // ratio of a range's ends above which a factor of 10 or more has no decimals

// The result before anything was measured.
/** @type {Speedup} */
export const UNKNOWN = { kind: "none", ratio: NaN, low: NaN, high: NaN, limit: Infinity, rounds: 1 };

/**
 * Compares the speeds of two runs. limit: the highest possible ratio, such as the ratio of their tokens per pass.
 * @param {Timed} run @param {Timed} baseline @param {number} [limit] @returns {Speedup}
 */
export function speedup(run, baseline, limit = Infinity) {
  const margin = Math.hypot(run.spread, baseline.spread, SPEED.apart);
  const ratio = rateOf(run) / rateOf(baseline) || NaN;
  const isShort = Math.min(run.tokens, baseline.tokens) < SPEED.least || Number.isNaN(margin);
  return classify(ratio, ratio * Math.exp(-margin), ratio * Math.exp(margin), limit, isShort);
}

/** @param {Timed} given */
const rateOf = ({ tokens, seconds }) => tokens / seconds;

/**
 * Returns a Speedup from the comparison that the server computed over all rounds (mars_runtime/runs/speedup.py,
 * Rounds).
 * @param {RoundsLine} given @returns {Speedup}
 */
export const ofRounds = ({ kind, ratio, low, high, limit, rounds }) => ({
  ...{ kind, ratio: ratio ?? NaN, low: low ?? NaN, high: high ?? NaN, limit: limit ?? Infinity, rounds },
});

/**
 * Decides how a measured ratio is reported. A ratio clearly above `limit`, which only a busy machine can cause, is not
 * reported; every reported ratio is at most `limit`. kind: "none" (nothing was measured), "short" (too few tokens),
 * "busy", "faster" or "slower" (the whole range is above or below 1, also after rounding), or "same".
 * @param {number} ratio @param {number} low @param {number} high @param {number} limit @param {boolean} isShort
 * @returns {Speedup}
 */
function classify(ratio, low, high, limit, isShort) {
  const nothing = { ...UNKNOWN, limit };
  if (!Number.isFinite(ratio)) return nothing;
  if (isShort) return { ...nothing, kind: "short" };
  const isNear = ratio < SPEED.near && ratio <= limit * SPEED.near;
  if (ratio > limit * SPEED.slack && !isNear) return { ...nothing, kind: "busy" };
  /** @param {number} value */
  const cut = (value) => Math.min(value, limit);
  const kind = cut(low) > 1 + SPEED.rounding ? "faster" : cut(high) < 1 - SPEED.rounding ? "slower" : "same";
  return { ...nothing, kind, ratio: cut(ratio), low: cut(low), high: cut(high) };
}

/**
 * Returns the index of the first token that differs, up to where the texts begin to repeat themselves; -1 if there is
 * none. If both texts are complete, a longer one differs too.
 * @param {Lane} lane @param {Lane} other
 */
export function differsAt(lane, other) {
  const [mine, theirs] = [upToLoop(lane), upToLoop(other)];
  const place = divergence(mine, theirs, 0);
  const [a, b] = [mine.tokens.length, theirs.tokens.length];
  const isComplete = [lane, other].every(({ end }) => FINAL.has(end?.reason ?? ""));
  return place >= 0 || a === b || !isComplete ? place : Math.min(a, b);
}

/**
 * Compares two lanes in their displayed state, counted until a text begins to repeat itself. If the other lane is plain
 * AR, the ratio of their tokens per pass is the limit. Different texts have no speedup.
 * @param {Lane} lane @param {Lane} other @returns {Speedup}
 */
export function laneSpeedup(lane, other) {
  if (differsAt(lane, other) >= 0) return { ...UNKNOWN, kind: "different" };
  /** @param {Lane} timed */
  const measured = (timed) => ({
    tokens: folds.tokens(timed),
    seconds: folds.seconds(timed),
    spread: upToLoop(timed).steps.at(-1)?.spread ?? NaN,
  });
  const limit = other.isAr ? folds.perForward(lane) / folds.perForward(other) : Infinity;
  return speedup(measured(lane), measured(other), limit);
}

/** Returns whether a comparison has a factor to report: its whole range is above or below 1. @param {Speedup} given */
export const isTimed = ({ kind }) => kind === "faster" || kind === "slower";

/**
 * Returns a comparison in words: "1.4 times as fast", or why there is no factor; "–" before anything was measured.
 * @param {Speedup} given
 */
export const speedupText = (given, what = "as fast") =>
  isTimed(given) ? `${factorText(given.ratio, given)} times ${what}` : (SPEED.notes[given.kind] ?? "–");

/** Returns the range of a factor, such as "1.2 to 1.6"; "" if there is no factor. @param {Speedup} given */
export function speedupRange(given) {
  if (!isTimed(given)) return "";
  const range = `${factorText(given.low, given)} to ${factorText(given.high, given)}`;
  return given.rounds > 1 ? `median of ${given.rounds} rounds, ${range}` : range;
}

/** Returns a comparison with its range, such as "1.4 times as fast (1.2 to 1.6)". @param {Speedup} given */
export const speedupSentence = (given, what = "as fast") =>
  isTimed(given) ? `${speedupText(given, what)} (${speedupRange(given)})` : speedupText(given);

/**
 * Formats a factor with as many decimals as the width of its range justifies. Never rounds it above the limit, nor to 1.
 * @type {(number: number, range: { low: number, high: number, limit: number }) => string}
 */
export function factorText(number, { low, high, limit }) {
  const isPrecise = high / low < SPEED.near * SPEED.near || number < 1 || number.toFixed(1) === "1.0";
  const decimals = number >= 10 ? (high / low > WIDE ? 0 : 1) : isPrecise ? 2 : 1;
  const shown = number.toFixed(decimals);
  if (Number(shown) <= limit) return shown;
  const unit = 10 ** decimals;
  return (Math.floor(number * unit) / unit).toFixed(decimals);
}
