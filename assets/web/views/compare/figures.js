// Compares the figures of several lanes: their values, the best values, and reasons why figures are not comparable.
// Pure; no DOM.

import { folds, headerOf, loopRemark } from "../../core/folds.js";
import { isTimed, laneSpeedup, speedupText } from "../../core/speedup.js";
import { isDone, parting } from "../../folds/grid.js";
import { dayOf, figure, milliseconds, minuteOf, passesText, threads, verdictText, whole } from "../../core/words.js";
import { laneText } from "../../text/settings.js";

export const LETTERS = ["A", "B", "C", "D", "E", "F"];

// The figures that are compared. better: 1 if a higher value is better, -1 if a lower value is better, 0 if neither.
// isTimed: whether the value depends on the machine.
/** @type {{ name: string, unit: string, of: (lane: Lane) => number, show: (value: number) => string, better: number, isTimed?: boolean }[]} */
export const FIGURES = [
  { name: "tokens per pass", unit: "", of: folds.perForward, show: figure, better: 1 },
  { name: "tokens per second", unit: "tok/s", of: folds.perSecond, show: figure, better: 1, isTimed: true },
  {
    name: "mean time per pass",
    unit: "ms",
    of: folds.secondsPerForward,
    show: milliseconds,
    better: -1,
    isTimed: true,
  },
  { name: "time to first token", unit: "ms", of: folds.toFirst, show: milliseconds, better: -1, isTimed: true },
  { name: "passes", unit: "", of: folds.forwards, show: whole, better: 0 },
  { name: "tokens", unit: "", of: folds.tokens, show: whole, better: 0 },
  { name: "passes saved", unit: "", of: (lane) => folds.tokens(lane) - folds.forwards(lane), show: whole, better: 0 },
];

/** @type {Record<string, string>} */
const ENDS = {
  eos: "end of the text",
  limit: "token limit",
  repeats: "repetition",
  deadline: "out of time",
  cancelled: "stopped",
  error: "failed",
};

/** @type {[name: string, of: (lane: Lane) => string][]} */
export const FACTS = [
  ["correct", (lane) => verdictText(lane.verdict) || "not checked"],
  ["ended by", (lane) => (lane.end ? ENDS[lane.end.reason] || lane.end.reason : "not ended")],
  ["settings", laneText],
  ["checkpoint", (lane) => headerOf(lane).checkpoint || "not known"],
  ["arithmetic", (lane) => [headerOf(lane).dtype, threads(headerOf(lane))].filter(Boolean).join(", ")],
  ["hardware", (lane) => headerOf(lane).hardware || "not known"],
  ["measured", (lane) => minuteOf(lane.header) || "not known"],
];

/**
 * Returns the result of a comparison in one sentence: which run wrote the baseline's text in the fewest passes, and
 * where the other runs differ from it. The baseline is plain AR or, without AR, the first run. Returns "" for runs with
 * different prompts or runs that have not ended.
 * @param {Lane[]} lanes
 */
export function comparisonFinding(lanes) {
  const at = Math.max(
    0,
    lanes.findIndex((lane) => lane.isAr),
  );
  const baseline = lanes[at];
  const prompts = new Set(lanes.map((lane) => String(headerOf(lane).prompt_ids)));
  if (lanes.length < 2 || prompts.size > 1 || !lanes.every(isDone)) return "";
  const others = lanes.map((lane, i) => ({ lane, letter: LETTERS[i] })).filter(({ lane }) => lane !== baseline);
  const judged = others.map((other) => ({ ...other, ...parting(other.lane, baseline) }));
  const [best] = judged.filter(({ isSame }) => isSame).sort((a, b) => folds.forwards(a.lane) - folds.forwards(b.lane));
  const same = best
    ? [
        `${best.letter} wrote the same text as ${LETTERS[at]} ${passesText(folds.forwards(best.lane), folds.forwards(baseline))}${timeText(best.lane, baseline)}`,
      ]
    : [];
  const differs = judged
    .filter(({ place }) => place >= 0)
    .map(({ letter, place }) => `${letter} differs from ${LETTERS[at]} at token ${place + 1}`);
  return `${[...same, ...differs].join("; ")}.`;
}

/**
 * Returns the end of a sentence, such as ", 1.2 times as fast"; "" if the speeds of the two lanes cannot be compared.
 * @param {Lane} lane
 * @param {Lane} baseline
 */
function timeText(lane, baseline) {
  const speedup = laneSpeedup(lane, baseline);
  return isOneMachine([lane, baseline]) && isTimed(speedup) ? `, ${speedupText(speedup)}` : "";
}

/**
 * Returns the indices of the best values; [] if all known values are equal or fewer than two are known.
 * @param {number[]} values
 * @param {number} better
 */
export function best(values, better) {
  const known = values.filter(Number.isFinite);
  if (!better || known.length < 2) return [];
  const top = better > 0 ? Math.max(...known) : Math.min(...known);
  if (known.every((value) => value === top)) return [];
  return values.flatMap((value, i) => (value === top ? [i] : []));
}

/** @param {Lane[]} lanes */
export const isOneMachine = (lanes) => new Set(lanes.map((lane) => headerOf(lane).hardware || "")).size === 1;

// Returns whether all lanes took the same number of prompt tokens from the KV cache. Otherwise their times to the first
// token are not comparable.
/** @param {Lane[]} lanes */
export const isReadAlike = (lanes) => new Set(lanes.map((lane) => lane.reused)).size === 1;

/**
 * Returns the reasons why these lanes are not fully comparable, one sentence each.
 * @param {Lane[]} lanes
 */
export function remarks(lanes) {
  const sentences = lanes.flatMap((lane, i) =>
    loopRemark(lane) ? [`All figures of ${LETTERS[i]} are measured ${loopRemark(lane)}.`] : [],
  );
  /** @param {(lane: Lane) => unknown} of */
  const byLetter = (of) => lanes.map((lane, i) => `${LETTERS[i]} ${of(lane)}`).join(", ");
  /** @param {(lane: Lane) => unknown} of */
  const differ = (of) => new Set(lanes.map(of)).size > 1;
  if (!isOneMachine(lanes))
    sentences.push(
      `Measured on different machines, so times and speeds can't be compared (${byLetter((lane) => headerOf(lane).hardware || "not known")}).`,
    );
  else if (differ(({ header }) => dayOf(header)))
    sentences.push(
      `Measured on different days (${byLetter(({ header }) => dayOf(header) || "not known")}): the machine may have been faster on one of them.`,
    );
  if (differ((lane) => headerOf(lane).dtype))
    sentences.push(`Different arithmetic: ${byLetter((lane) => headerOf(lane).dtype || "not known")}.`);
  if (differ((lane) => headerOf(lane).prompt))
    sentences.push("Different prompts: the number of tokens per pass depends on the text.");
  if (!isReadAlike(lanes))
    sentences.push(
      `Part of the prompt was cached (tokens: ${byLetter((lane) => lane.reused)}), so times to first token can't be compared.`,
    );
  const open = lanes.flatMap((lane, i) => (lane.end ? [] : [LETTERS[i]]));
  if (open.length) sentences.push(`${open.join(" and ")} had not ended when pinned.`);
  return sentences;
}
