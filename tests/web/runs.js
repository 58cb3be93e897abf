// Short runs written by hand, as the lines of a trace. Tokens are numbers: 1 writes "a", 2 "b", and so on; 50 ends.
import { Lane } from "../../assets/web/core/trace.js";

export const END = 50;
const LETTERS = "abcdefghijklmnopqrstuvwxyz";
export const VOCABULARY = Object.fromEntries([...LETTERS].map((letter, i) => [i + 1, letter]));

const SETTINGS = {
  method: "mars",
  tau: 0.9,
  block_size: 4,
  metric: "probability",
  lossless: false,
  max_new_tokens: 64,
};

// One forward: [token, confidence] of every slot, of which `count` are taken. The prompt has three tokens.
export const forward = (start, slots, count, stop, more = {}) => ({
  row: 0,
  start,
  cursor: 2 + start,
  num_pending: 1,
  num_fed: slots.length,
  proposals: slots.map(([token, confidence]) => [token, confidence, [[26, 0.01]]]),
  accepted: slots.slice(0, count).map(([token]) => token),
  num_drafted: 0,
  stop,
  ...more,
});

export function linesOf(rows, { settings = {}, seconds = 0.1, end = "eos", header = {}, prefill = {} } = {}) {
  const events = [
    {
      type: "header",
      settings: { ...SETTINGS, ...settings },
      vocabulary: VOCABULARY,
      prompt_ids: [24, 25, 26],
      ...header,
    },
    { type: "prefill", seconds: 0.5, ...prefill },
    ...rows.map((row) => ({ type: "step", seconds, rows: [row] })),
    ...(end ? [{ type: "end", reason: end, message: "" }] : []),
  ];
  return events.map((event) => JSON.stringify(event));
}

export const laneOf = (rows, more, name = "mars") => Lane.of(linesOf(rows, more), { lane: name, title: name });

// τ 0.9: writes a b | c | e f | g END. The first refused c was right, the d behind it was not.
export const PLAIN = [
  forward(0, [[1, 0.99], [2, 0.95], [3, 0.85], [4, 0.5]], 2, "threshold", { sources: "am" }), // prettier-ignore
  forward(2, [[3, 0.97], [4, 0.7], [7, 0.6], [8, 0.95]], 1, "threshold", { cursor: 3, num_pending: 2, num_fed: 5 }), // prettier-ignore
  forward(3, [[5, 0.9], [6, 0.92], [END, 0.3], [8, 0.2]], 2, "threshold", { sources: "am" }), // prettier-ignore
  forward(5, [[7, 0.9], [END, 0.95]], 2, "eos", { sources: "am" }), // prettier-ignore
];

// Lossless: a | b c | d | e | f END. b is confirmed, i is replaced by AR's d.
export const LOSSLESS = [
  forward(0, [[1, 0.99], [2, 0.95], [3, 0.8]], 1, "threshold", { num_drafted: 1 }), // prettier-ignore
  forward(1, [[2, 0.9], [3, 0.99], [9, 0.95], [5, 0.92]], 2, "block", { num_drafted: 2, num_pending: 2, sources: "ma" }), // prettier-ignore
  forward(3, [[4, 0.8], [5, 0.7], [6, 0.6]], 1, "mismatch", { num_pending: 3 }), // prettier-ignore
];
export const LOSSLESS_SETTINGS = { settings: { lossless: true } };

// Plain AR: one token per forward.
export const arOf = (text, more = {}) =>
  laneOf(
    text.map((token, i) => forward(i, [[token, 0.8]], 1, token === END ? "eos" : "block")),
    { settings: { method: "ar" }, ...more },
    "ar",
  );
