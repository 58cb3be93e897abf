import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";

import {
  UNKNOWN,
  laneSpeedup,
  ofRounds,
  speedup,
  speedupParts,
  speedupRange,
  speedupRemark,
  speedupSentence,
  speedupShort,
  speedClause,
  speedupText,
} from "../../assets/web/core/speedup.js";
import { SPEED } from "../../assets/web/core/table.js";
import { arOf, laneOf, PLAIN } from "./runs.js";

const CASES = JSON.parse(readFileSync(new URL("speedups.json", import.meta.url), "utf-8"));
const timed = (tokens, num, seconds) => ({ tokens, seconds: num * seconds, spread: 0 });
// Seconds that swing by `share` around 0.1, so that the parts of a run differ.
const swinging = (tokens, num, share) => ({ tokens, seconds: num * 0.1, spread: 0.892 * share });
const said = (...given) => speedupSentence(speedup(...given));

test("each generated case is judged as mars_runtime/speedup.py judges it", () => {
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
          const words = [speedupText(found), speedupShort(found), speedupRange(found).replace(/median of \d, /, "")];
          const left = (/** @type {string} */ _, /** @type {string} */ part) => `${1 - Number(part) / 100}`;
          const numbers = words.join(" ").replace(/(\d+) % slower/, left).match(/\d+(\.\d+)?/g) ?? []; // prettier-ignore
          for (const number of numbers) assert.ok(Number(number) <= limit + 1e-9, `${words.join(", ")} above ${limit}`);
        }
      }
    }
  });

  test("what exceeds them is not measured, and to be measured again", () => {
    const found = speedup(timed(42, 34, 0.08), timed(42, 38, 0.1), 38 / 34);
    assert.deepEqual([found.kind, speedupText(found), speedupShort(found)], ["busy", "not measured", "not measured"]);
    assert.equal(speedupSentence(found), `not measured; ${SPEED.notes.busy}`);
    assert.deepEqual(speedupParts(found), ["not measured", ""]);
  });

  test("near 1 it is rounding, not a busy machine", () => {
    assert.equal(said(timed(40, 40, 0.1), timed(40, 40, 0.104), 1), "about as fast (0.98 to 1.00)");
    assert.equal(speedup(timed(40, 40, 0.1), timed(40, 40, 0.104), 1).kind, "same");
  });

  test("against another method than AR there is no such limit", () => {
    const [fast, slow] = [laneOf(PLAIN, { seconds: 0.01 }), laneOf(PLAIN, { seconds: 0.1 }, "other")];
    assert.equal(laneSpeedup(fast, slow).limit, Infinity);
    assert.equal(laneSpeedup(fast, arOf([1, 2, 3])).limit, 7 / 4);
  });
});

describe("speedup", () => {
  test("a speedup is the ratio of tokens per second, in words with its range", () => {
    const found = speedup(timed(80, 20, 0.1), timed(80, 80, 0.1)); // 40 against 10 tokens per second
    assert.deepEqual([found.kind, found.ratio.toFixed(6)], ["faster", "4.000000"]);
    assert.equal(speedupSentence(found), "4.00 times as fast (3.77 to 4.25)");
    assert.equal(speedupShort(found), "4.00×");
    assert.equal(said(swinging(80, 40, 0.1), timed(80, 56, 0.1)), "1.4 times as fast (1.3 to 1.6)");
  });

  test("below 1 it is slower, near 1 about as fast", () => {
    assert.equal(said(timed(40, 40, 0.2), timed(40, 40, 0.1)), "50 % slower (0.47 to 0.53)");
    assert.equal(said(timed(40, 40, 0.1), timed(40, 40, 0.1)), "about as fast (0.94 to 1.06)");
    assert.equal(said(timed(40, 40, 0.103), timed(40, 40, 0.1)), "about as fast (0.91 to 1.03)");
    assert.equal(speedup(timed(40, 40, 0.103), timed(40, 40, 0.1)).kind, "same");
  });

  test("nothing is said of less than twenty tokens, nor of what was not measured", () => {
    assert.equal(
      said(timed(19, 19, 0.1), timed(40, 40, 0.1)),
      "too short to time (needs at least 20 tokens in both texts)",
    );
    assert.equal(said(timed(0, 0, 0.1), timed(40, 40, 0.1)), "–");
    assert.equal(laneSpeedup(laneOf(PLAIN), arOf([1, 2, 3])).kind, "short");
  });

  test("a wide range takes neither the sign nor the number back: what to do stands beside it", () => {
    const busy = swinging(80, 16, 0.45);
    const found = speedup(busy, timed(80, 80, 0.1)); // 5 times as fast
    assert.equal(found.kind, "faster");
    assert.ok(found.high / found.low > 1.5);
    assert.equal(speedupText(found), "5.0 times as fast");
    assert.match(speedupSentence(found), /^5\.0 times as fast \(3\.\d to 7\.\d\); pass times varied: /);
    const disturbed = speedup(timed(80, 16, 0.1), swinging(80, 80, 0.45)); // AR's own passes are alike
    assert.equal(speedupRemark(disturbed), SPEED.notes.busy);
    const slower = speedup(swinging(80, 80, 0.45), timed(80, 16, 0.1));
    assert.deepEqual([slower.kind, speedupText(slower)], ["slower", "80 % slower"]);
  });

  test("where the range reaches over 1 the number stands all the same", () => {
    const found = speedup(swinging(84, 64, 0.5), timed(80, 80, 0.1));
    assert.deepEqual([found.kind, speedupText(found)], ["same", "1.3 times as fast"]);
  });

  test("rounds have their median and spread from the server", () => {
    const found = ofRounds({ kind: "faster", ratio: 1.4, low: 1.3, high: 1.6, limit: 2, rounds: 3, rate: [1, 1, 1] });
    assert.equal(speedupSentence(found), "1.4 times as fast (median of 3 rounds, 1.3 to 1.6)");
    assert.equal(speedupSentence(UNKNOWN), "–");
    assert.equal(speedupText({ ...UNKNOWN, kind: "short" }), "too short to time");
  });

  test("a sentence ends with the speed, or with why there is none", () => {
    const found = ofRounds({ kind: "faster", ratio: 1.4, low: 1.3, high: 1.6, limit: 2, rounds: 3, rate: [1, 1, 1] });
    assert.equal(speedClause(found), ", 1.4 times as fast");
    assert.equal(speedClause({ ...UNKNOWN, kind: "short" }), "; too short to time");
    assert.match(speedClause({ ...UNKNOWN, kind: "busy" }), /^; the machine was too busy to time$/);
    assert.equal(speedClause(UNKNOWN), "");
  });
});
