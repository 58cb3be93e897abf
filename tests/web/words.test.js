import assert from "node:assert/strict";
import { test } from "node:test";

import * as words from "../../assets/web/core/words.js";

test("one is counted without an s", () => {
  assert.equal(words.counted(1, "token"), "1 token");
  assert.equal(words.counted(0, "token"), "0 tokens");
  assert.equal(words.counted(1234, "token"), "1,234 tokens");
});

test("at most three figures that matter and two decimals", () => {
  assert.deepEqual([7.123, 71.23, 712.3, 1234.5].map(words.figure), ["7.12", "71.2", "712", "1,235"]);
  assert.deepEqual([NaN, Infinity].map(words.figure), ["–", "–"]);
});

test("a probability is never rounded to certainty", () => {
  assert.equal(words.probability(0.99951), "> 0.999");
  assert.equal(words.probability(0.0001), "< 0.001");
  assert.equal(words.probability(1), "1.000");
  assert.equal(words.probability(0.5), "0.500");
});

test("thresholds, milliseconds, sizes", () => {
  assert.equal(words.short(0.95), "0.95");
  assert.equal(words.short(1), "1");
  assert.equal(words.milliseconds(0.0123), "12.3");
  assert.deepEqual([512, 1024, 1_500_000].map(words.memory), ["512 bytes", "1.02 kB", "1.50 MB"]);
});

test("what a run was made on leaves out what is not known", () => {
  const header = { checkpoint: "mars-tiny", hardware: "", dtype: "float32", threads: 1, versions: { torch: "2.13.0" } };
  assert.equal(words.environment(header), "mars-tiny · float32 · 1 thread · torch 2.13.0");
  assert.equal(words.environment({ threads: 2 }), "2 threads");
  assert.equal(words.environment(null), "");
});
