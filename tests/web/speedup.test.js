import assert from "node:assert/strict";
import { test } from "node:test";

import { laneSpeedup, speedup, speedupRemark, speedupText } from "../../assets/web/core/speedup.js";
import { PLAIN, arOf, laneOf } from "./runs.js";

const timed = (tokens, num, seconds) => ({ tokens, seconds: Array.from({ length: num }, () => seconds) });

test("a speedup is the ratio of tokens per second", () => {
  const found = speedup(timed(80, 20, 0.1), timed(80, 80, 0.1)); // 40 against 10 tokens per second
  assert.deepEqual([found.kind, found.ratio.toFixed(6)], ["faster", "4.000000"]);
  assert.equal(speedupText(found), "4.00×");
  assert.equal(speedupRemark(found), "4.00 to 4.00 in repeats");
});

test("below 1 it is slower, at 1 the same", () => {
  assert.equal(speedup(timed(40, 40, 0.2), timed(40, 40, 0.1)).kind, "slower");
  assert.equal(speedup(timed(40, 40, 0.1), timed(40, 40, 0.1)).kind, "same");
  const written = speedup(timed(40, 40, 0.1003), timed(40, 40, 0.1)); // 0.997
  assert.deepEqual([written.kind, speedupText(written)], ["same", "1.00×"]);
});

test("nothing is said of less than twenty tokens, nor of what was not measured", () => {
  const short = speedup(timed(19, 19, 0.1), timed(40, 40, 0.1));
  assert.deepEqual([speedupText(short), speedupRemark(short)], ["too short to time", "under 20 tokens"]);
  const none = speedup(timed(0, 0, 0.1), timed(40, 40, 0.1));
  assert.deepEqual([speedupText(none), speedupRemark(none)], ["–", ""]);
});

test("forwards that vary too much are noise", () => {
  const wild = { tokens: 40, seconds: [0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.9] };
  assert.equal(speedupText(speedup(wild, timed(40, 40, 0.1))), "noisy");
});

test("more than the forwards saved can bring is a disturbance", () => {
  const found = speedup(timed(40, 20, 0.05), timed(40, 40, 0.1), 2);
  assert.equal(found.kind, "noisy");
  assert.equal(speedupRemark(found), "4.00×, but only 2.00 times fewer forwards");
});

test("two lanes are compared as far as they are shown", () => {
  assert.equal(laneSpeedup(laneOf(PLAIN), arOf([1, 2, 3])).kind, "short");
});
