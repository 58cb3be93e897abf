import assert from "node:assert/strict";
import { test } from "node:test";

import { measuredText, ratesText } from "../../assets/web/views/throughput/measured.js";
import { State } from "../../assets/web/views/throughput/state.js";

const begun = () => {
  const state = new State({ run: "a", rows: 2, prompts: ["x", "y", "z"] });
  state.apply("begin", { method: "mars", title: "MARS", round: 0, of: 0 });
  return state;
};

test("the next prompt takes the slot of an answer that ended", () => {
  const state = begun();
  state.apply("pass", { at: 1, rows: [[0, 1, "a"], [1, 3, "bcd", "eos"]] }); // prettier-ignore
  state.apply("pass", { at: 2, rows: [[0, 2, "e"], [2, 1, "f"]] }); // prettier-ignore
  assert.deepEqual(
    state.slots.map((slot) => [slot.prompt, slot.tokens, slot.pieces.map(({ text }) => text).join("")]),
    [
      [0, 3, "ae"],
      [2, 1, "f"],
    ],
  );
});

test("a move names what changed, and a new part begins without it", () => {
  const state = begun();
  const first = { at: 0, tau: 0.9, block_size: 4, lossless: false };
  for (const move of [first, { ...first, at: 2, tau: 0.5 }, { ...first, at: 3, block_size: 2, lossless: true }])
    state.apply("move", move);
  assert.deepEqual(
    state.moves.map(({ text }) => text !== ""),
    [false, true, true],
  );
  assert.match(state.moves[1].text, /0\.9.*0\.5/);
  assert.match(state.moves[2].text, /0\.5.*0\.9.*4.*2/);
  state.apply("begin", { method: "ar", title: "plain AR", round: 0, of: 0 });
  assert.deepEqual([state.moves, state.points, state.slots], [[], [], [null, null]]);
});

test("a measurement has a factor only if its range excludes 1", () => {
  const side = (passes) => ({ rates: [], rate: [1, 1, 1], passes, tpf: 1 });
  const measured = (kind, ratio, low, high, same = 1) => ({
    ...{ date: "", rows: 2, prompts: ["x"], num_same: same, mars: side(50), ar: side(100) },
    speedup: { kind, ratio, low, high, limit: 2, rounds: 3, rate: [1, 1, 1] },
  });
  assert.match(measuredText(measured("faster", 1.4, 1.2, 1.6)), /50 .*100.*1\.4/);
  for (const unclear of [measured("same", 1.3, 0.9, 1.7), measured("busy", null, null, null)])
    assert.doesNotMatch(measuredText(unclear), /times|%/);
  assert.doesNotMatch(measuredText(measured("faster", 1.4, 1.2, 1.6, 0)), /instead|times/);
});

test("a live run ends with both rates and without a factor", () => {
  const state = begun();
  assert.equal(ratesText(state), "");
  state.apply("level", { rate: 4 });
  state.apply("pass", { at: 2, rows: [[0, 6, "a"]] });
  state.apply("figures", { at: 2, done: 0, rate: 3, tpf: 6, waiting: 0 });
  assert.equal(ratesText(state), "");
  state.apply("figures", { at: 2, done: 1, rate: 3, tpf: 6, waiting: 0 });
  assert.match(ratesText(state), /\b3\b.*\b4\b/);
  assert.doesNotMatch(ratesText(state), /times|%/);
});
