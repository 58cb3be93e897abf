// What is compared of several lanes: figures, which of them is best, and what makes them not comparable.
// Pure: lanes in, numbers and sentences out.

import { figure, milliseconds, whole } from "../common/bytes.js";
import { folds } from "../common/trace.js";
import { settingsText } from "../race_view/card.js";

export const LETTERS = ["A", "B", "C", "D", "E", "F"];

// better: 1 more is better, -1 less is, 0 neither. isTimed: it depends on the machine.
export const FIGURES = [
  { name: "tokens per forward", unit: "TPF", of: folds.perForward, show: figure, better: 1 },
  { name: "tokens per second", unit: "tok/s", of: folds.perSecond, show: figure, better: 1, isTimed: true },
  { name: "one forward", unit: "ms", of: folds.secondsPerForward, show: milliseconds, better: -1, isTimed: true },
  { name: "to first token", unit: "ms", of: folds.toFirst, show: milliseconds, better: -1, isTimed: true },
  { name: "forwards", unit: "", of: folds.forwards, show: whole, better: 0 },
  { name: "tokens", unit: "", of: folds.tokens, show: whole, better: 0 },
  { name: "forwards saved", unit: "", of: (lane) => folds.tokens(lane) - folds.forwards(lane), show: whole, better: 0 },
];

const ENDS = { eos: "end of the text", limit: "limit of tokens", deadline: "out of time", cancelled: "stopped", error: "failed" };
const verdictText = (lane) => (lane.verdict === null || lane.verdict === undefined ? "not known" : lane.verdict ? "✓ right" : "✗ wrong");
export const dayOf = (lane) => (lane.header.date || "").slice(0, 10);

export const FACTS = [
  ["verdict", verdictText],
  ["ended by", (lane) => (lane.end ? ENDS[lane.end.reason] || lane.end.reason : "not ended")],
  ["settings", (lane) => settingsText(lane.settings, lane.steps.at(-1)?.blockSize)],
  ["checkpoint", (lane) => lane.header.checkpoint || "not known"],
  ["arithmetic", (lane) => [lane.header.dtype, lane.header.threads ? `${lane.header.threads} ${lane.header.threads === 1 ? "thread" : "threads"}` : ""].filter(Boolean).join(", ")],
  ["hardware", (lane) => lane.header.hardware || "not known"],
  ["measured", (lane) => (lane.header.date || "not known").slice(0, 16).replace("T", " ")],
];

// The places of the best values: none where all are alike or fewer than two are known.
export function best(values, better) {
  const known = values.filter(Number.isFinite);
  if (!better || known.length < 2) return [];
  const top = better > 0 ? Math.max(...known) : Math.min(...known);
  if (known.every((value) => value === top)) return [];
  return values.flatMap((value, i) => (value === top ? [i] : []));
}

export const isOneMachine = (lanes) => new Set(lanes.map((lane) => lane.header.hardware || "")).size === 1;

// What a reader has to know before comparing, each one sentence.
export function remarks(lanes) {
  const said = [];
  const each = (of) => lanes.map((lane, i) => `${LETTERS[i]} ${of(lane)}`).join(", ");
  const differ = (of) => new Set(lanes.map(of)).size > 1;
  if (!isOneMachine(lanes)) said.push(`Measured on different machines: their milliseconds and tokens per second are not comparable (${each((lane) => lane.header.hardware || "not known")}).`);
  else if (differ(dayOf)) said.push(`Measured on different days (${each((lane) => dayOf(lane) || "not known")}): the same machine may have been faster on one of them.`);
  if (differ((lane) => lane.header.dtype)) said.push(`Different arithmetic: ${each((lane) => lane.header.dtype || "not known")}.`);
  if (differ((lane) => lane.header.prompt)) said.push("Different prompts: the texts answer different questions, and the number of tokens per forward depends on the text.");
  const open = lanes.flatMap((lane, i) => (lane.end ? [] : [LETTERS[i]]));
  if (open.length) said.push(`${open.join(" and ")} had not ended when pinned.`);
  return said;
}
