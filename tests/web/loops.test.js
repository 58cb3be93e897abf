// Where a text begins to repeat itself: the cases of tests/test_loops.py, and what a loop does to figures.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { folds, loopRemark } from "../../assets/web/core/folds.js";
import { findLoop, loopsAt } from "../../assets/web/core/loops.js";
import { LOOPS } from "../../assets/web/core/table.js";
import { Lane } from "../../assets/web/core/trace.js";
import { fastest, textsOf } from "../../assets/web/folds/grid.js";
import { paceText } from "../../assets/web/views/race/headline.js";

/** @param {number} num */
const counting = (num) => Array.from({ length: num }, (_, i) => i);

/**
 * @param {number[]} phrase
 * @param {number} times
 */
const repeated = (phrase, times) => Array.from({ length: times }, () => phrase).flat();

test("each generated case is decided as mars_runtime/loops.py decides it", () => {
  const cases = JSON.parse(readFileSync(new URL("loops.json", import.meta.url), "utf-8"));
  for (const [place, { ids, loop }] of cases.entries()) {
    const found = findLoop(ids);
    assert.deepEqual(found && [found.kept, found.end], loop, `case ${place}`);
  }
});

test("loops are found where Python finds them", () => {
  assert.equal(findLoop(counting(300)), null);
  assert.equal(findLoop([]), null);
  assert.deepEqual(findLoop([1, 2, 3, ...repeated([7], 60)]), { kept: 4, end: 4 + LOOPS.minRepeated });
  assert.equal(findLoop([1, 2, 3, ...repeated([9], LOOPS.minRepeated)]), null);
  const sentence = counting(40);
  assert.equal(findLoop([...sentence, ...sentence, ...sentence.slice(0, 19)]), null);
  assert.deepEqual(findLoop(repeated(sentence, 3)), { kept: 40, end: 100 });
  assert.equal(findLoop(repeated(counting(LOOPS.maxPeriod + 1), 2)), null);
  assert.deepEqual(findLoop(repeated(counting(LOOPS.maxPeriod + 1), 3)), { kept: 80, end: 192 });
  assert.deepEqual(findLoop(repeated(counting(LOOPS.maxPeriod), 3)), { kept: 64, end: 160 });
  assert.equal(findLoop(repeated([7], 60), 59)?.end, 60);
});

test("what nearly repeats is found where Python finds it", () => {
  const stanzas = [0, 1, 2].flatMap((number) => [...counting(99), 1000 + number]);
  assert.deepEqual(findLoop(stanzas), { kept: 106, end: 256 });
  assert.equal(findLoop(stanzas.slice(0, 255)), null);
  assert.deepEqual(findLoop(repeated(counting(160), 3)), { kept: 160, end: 400 });
  assert.equal(findLoop(repeated(counting(161), 9)), null);
  /** @param {number[]} about */
  const lines = (...about) => counting(40).flatMap((line) => [100, 1 + Math.floor(line / 10), line % 10, ...about]);
  assert.deepEqual(findLoop(lines(200, 201)), { kept: 16, end: 128 });
  assert.equal(findLoop(lines(200)), null);
  /** @param {string} order */
  const sentences = (order) => [...order].flatMap((letter) => counting(12).map((i) => 20 * letter.charCodeAt(0) + i));
  assert.deepEqual(findLoop(sentences("abcacbabcbacabc")), { kept: 48, end: 144 });
  assert.equal(findLoop(sentences("abcacbabcbacabc").slice(0, 143)), null);
  assert.equal(findLoop(sentences("abcacbbaccab")), null);
});

/**
 * A lane that writes these groups, a forward of a second for each.
 * @param {number[][]} groups
 * @param {string} name
 * @param {string} reason
 */
function laneOf(groups, name = "mars", reason = "repeats") {
  const vocabulary = Object.fromEntries(groups.flat().map((id) => [id, String.fromCharCode(97 + id)]));
  const settings = { method: name, tau: 0.5, block_size: 8 };
  const header = { type: "header", version: 1, checkpoint: "c", prompt: "", prompt_ids: [1], settings, vocabulary };
  let start = 0;
  const steps = groups.map((accepted, i) => {
    const stop = i === groups.length - 1 ? reason : "block";
    const row = { row: 0, start, cursor: 0, num_pending: 1, num_fed: 8, proposals: [], accepted, num_drafted: 0, stop };
    start += accepted.length;
    return { type: "step", seconds: 1, rows: [row] };
  });
  const lines = [header, ...steps, { type: "end", reason, message: "" }].map((line) => JSON.stringify(line));
  return Lane.of(lines, { lane: name, title: name });
}

const looping = () =>
  laneOf([[1, 2], [3], [4, 5, 4, 5, 4, 5, 4, 5], ...Array.from({ length: 8 }, () => repeated([4, 5], 4))]);

test("tokens per forward are told without a loop, and that is said", () => {
  const lane = looping();
  assert.equal(lane.tokens.length, 75);
  assert.equal(loopsAt(lane), 5);
  assert.equal(folds.perForward(lane), 5 / 3);
  assert.match(loopRemark(lane), /up to token 5, where it begins to repeat itself/);
  assert.equal(paceText(lane), "1.67 tokens per pass up to token 5, where it begins to repeat itself");
  const cut = lane.at(3);
  assert.equal(loopsAt(cut), -1);
  assert.equal(folds.perForward(cut), 11 / 3);
  assert.equal(loopRemark(cut), "");
  assert.equal(paceText(cut), "3.67 tokens per pass");
  assert.equal(paceText(lane.at(0)), "");
});

test("a cell that goes round in circles is never the fastest, and says what it does", () => {
  const timed = (/** @type {number} */ ratio) => ({ kind: "faster", ratio, low: ratio, high: ratio, limit: 9, rounds: 3, rate: [1, 1, 1] }); // prettier-ignore
  const ar = { name: "ar", rounds: timed(1), lane: laneOf([[1], [2], [3]], "ar", "eos"), row: null, blockSize: 1 };
  const good = {
    name: "a",
    lane: laneOf([[1, 2], [3]], "mars", "eos"),
    row: { tau: 0.9, lossless: false },
    blockSize: 2,
    rounds: timed(1.2),
  };
  const garbage = { name: "b", rounds: timed(4), lane: looping(), row: { tau: 0, lossless: false }, blockSize: 8 };
  const cells = /** @type {Cell[]} */ (/** @type {unknown} */ ([ar, good, garbage]));
  assert.equal(fastest(cells)?.name, "a");
  assert.match(textsOf(cells[2], cells[0]).differs, /^repeats itself/);
  assert.doesNotMatch(textsOf(cells[1], cells[0]).differs, /repeats/);
});
