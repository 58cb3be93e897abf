import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";

import {
  UNKNOWN,
  isTimed,
  laneSpeedup,
  ofRounds,
  speedup,
  speedupRange,
  speedupSentence,
  speedupText,
} from "../../assets/web/core/speedup.js";
import { SPEED } from "../../assets/web/core/table.js";
import { arOf, laneOf, PLAIN } from "./runs.js";

const CASES = JSON.parse(readFileSync(new URL("speedups.json", import.meta.url), "utf-8"));
const timed = (tokens, num, seconds) => ({ tokens, seconds: num * seconds, spread: 0 });
// Seconds that swing by `share` around 0.1, so that the parts of a run differ.
const swinging = (tokens, num, share) => ({ tokens, seconds: num * 0.1, spread: 0.892 * share });
const said = (...given) => speedupSentence(speedup(...given));

test("each generated case is judged as mars_runtime/runs/speedup.py judges it", () => {
  /** A run without a spread has less than two passes. */
  const run = (given) => ({ ...given, spread: given.spread ?? NaN });
  for (const [place, { one, other, limit, found }] of CASES.entries()) {
    const mine = speedup(run(one), run(other), limit ?? Infinity);
    assert.equal(mine.kind, found.kind, `case ${place}`);
    const numbers = [mine.ratio, mine.low, mine.high];
    found.numbers.forEach((wanted, i) => assert.ok(Math.abs(numbers[i] - wanted) < 1e-6, `case ${place}`));
  }
});

describe("no ratio above the passes saved", () => {
  const LIMITS = [0.8, 1, 1.117, 1.5, 1.956, 3, 12.34];
  const SHARES = [0.5, 0.97, 1, 1.01, 1.03, 1.09, 1.2, 4];

  test("no number in any of the words is above them", () => {
    for (const limit of LIMITS) {
      for (const share of SHARES) {
        const ratio = limit * share;
        const pair = speedup(swinging(100, 100, 0.1 / ratio), timed(100, 100, 0.1), limit);
        const exact = speedup(timed(100, 100, 0.1 / ratio), timed(100, 100, 0.1), limit);
        for (const found of [pair, exact]) {
          if (!isTimed(found)) continue;
          const words = [speedupText(found), speedupRange(found)];
          const numbers = words.join(" ").match(/\d+(\.\d+)?/g) ?? [];
          for (const number of numbers) assert.ok(Number(number) <= limit + 1e-9, `${words.join(", ")} above ${limit}`);
        }
      }
    }
  });

  test("a ratio above them has no number", () => {
    const found = speedup(timed(42, 34, 0.08), timed(42, 38, 0.1), 38 / 34);
    assert.deepEqual([found.kind, speedupText(found)], ["busy", SPEED.notes.busy]);
  });

  test("near 1 it is rounding, not a busy machine", () =>
    assert.equal(speedup(timed(40, 40, 0.1), timed(40, 40, 0.104), 1).kind, "same"));

  test("against another method than AR there is no such limit", () => {
    const [fast, slow] = [laneOf(PLAIN, { seconds: 0.01 }), laneOf(PLAIN, { seconds: 0.1 }, "other")];
    assert.equal(laneSpeedup(fast, slow).limit, Infinity);
    assert.equal(laneSpeedup(fast, arOf([1, 2, 3], { end: "" })).limit, 7 / 4);
  });
});

describe("speedup", () => {
  test("a printed range never contains 1", () => {
    for (const spread of [0, 0.1, 0.3]) {
      for (let ratio = 0.5; ratio < 2; ratio += 0.003) {
        const found = speedup({ ...timed(100, 100, 0.1 / ratio), spread }, timed(100, 100, 0.1));
        const [low, high] = speedupRange(found).split(" to ").map(Number);
        assert.ok(!isTimed(found) || low > 1 || high < 1, `${ratio}: ${low} to ${high}`);
      }
    }
  });

  test("a speedup is the ratio of tokens per second, in words with its range", () => {
    const found = speedup(timed(80, 20, 0.1), timed(80, 80, 0.1)); // 40 against 10 tokens per second
    assert.deepEqual([found.kind, found.ratio.toFixed(6)], ["faster", "4.000000"]);
    assert.equal(speedupSentence(found), "4.00 times as fast (3.77 to 4.25)");
    assert.equal(said(swinging(80, 40, 0.1), timed(80, 56, 0.1)), "1.4 times as fast (1.3 to 1.6)");
  });

  test("below 1 it is a factor too, and none if the range contains 1", () => {
    assert.equal(said(timed(40, 40, 0.2), timed(40, 40, 0.1)), "0.50 times as fast (0.47 to 0.53)");
    for (const found of [
      speedup(timed(40, 40, 0.103), timed(40, 40, 0.1)),
      speedup(swinging(84, 64, 0.5), timed(80, 80, 0.1)),
    ])
      assert.deepEqual([found.kind, speedupText(found)], ["same", SPEED.notes.same]);
  });

  test("nothing is said of less than twenty tokens, nor of what was not measured", () => {
    assert.equal(said(timed(19, 19, 0.1), timed(40, 40, 0.1)), SPEED.notes.short);
    assert.equal(said(timed(0, 0, 0.1), timed(40, 40, 0.1)), "–");
    assert.equal(laneSpeedup(laneOf(PLAIN), arOf([1, 2, 3], { end: "" })).kind, "short");
    assert.equal(laneSpeedup(laneOf(PLAIN), arOf([1, 2, 3])).kind, "different");
  });

  test("rounds have their median and spread from the server", () => {
    const found = ofRounds({ kind: "faster", ratio: 1.4, low: 1.3, high: 1.6, limit: 2, rounds: 3, rate: [1, 1, 1] });
    assert.equal(speedupSentence(found), "1.4 times as fast (median of 3 rounds, 1.3 to 1.6)");
    assert.equal(speedupSentence(UNKNOWN), "–");
  });
});
