// What a loop that the server found does to figures and words.

import assert from "node:assert/strict";
import { test } from "node:test";
import { folds, loopRemark, passesSaved } from "../../assets/web/core/folds.js";
import { loopsAt, upToLoop } from "../../assets/web/core/loops.js";
import { savedText } from "../../assets/web/core/sources.js";
import { laneSpeedup } from "../../assets/web/core/speedup.js";
import { forward, laneOf } from "./runs.js";

const LOOP = [5, 53];
const END = "repeats";

// A lane that writes these groups, a forward of a second for each.
function laneIn(groups, name) {
  const letters = Object.fromEntries(groups.flat().map((id) => [id, String.fromCharCode(97 + id)]));
  let start = 0;
  const rows = groups.map((group, i) => {
    const isEvident = start < LOOP[1] && LOOP[1] <= start + group.length;
    const sources = name === "ar" ? undefined : `a${"m".repeat(group.length - 1)}`;
    const more = { sources, spread: 0, ...(isEvident ? { loop: LOOP } : {}) };
    const slots = group.map((id) => [id, 0.9]);
    start += group.length;
    return forward(start - group.length, slots, group.length, i === groups.length - 1 ? END : "block", more);
  });
  return laneOf(rows, { seconds: 1, end: END, settings: { method: name }, header: { vocabulary: letters } }, name);
}

const looping = () => laneIn([[1, 2], [3], ...Array.from({ length: 9 }, () => [4, 5, 4, 5, 4, 5, 4, 5])], "mars");

test("tokens per forward are told without a loop, and that is said", () => {
  const lane = looping();
  assert.equal(lane.tokens.length, 75);
  assert.equal(loopsAt(lane), 5);
  assert.equal(folds.perForward(lane), 5 / 3);
  assert.match(loopRemark(lane), /until the text starts to loop at token 5/);
  const cut = lane.at(3);
  assert.equal(loopsAt(cut), -1);
  assert.equal(folds.perForward(cut), 11 / 3);
  assert.equal(loopRemark(cut), "");
});

test("every figure of a run counts up to the loop", () => {
  const lane = looping();
  const ar = laneIn(lane.ids.map((id) => [id]), "ar"); // prettier-ignore
  for (const [given, passes] of [
    [lane, 3],
    [ar, 5],
  ]) {
    // prettier-ignore
    assert.deepEqual([folds.tokens(given), folds.forwards(given), folds.seconds(given)], [5, passes, passes]);
    assert.deepEqual([folds.perSecond(given), folds.secondsPerForward(given)], [5 / passes, 1]);
    assert.equal(given.tokens.length, 75);
    const part = upToLoop(given);
    assert.deepEqual([part.ids, loopsAt(part), upToLoop(part)], [[1, 2, 3, 4, 5], -1, part]);
  }
  assert.deepEqual(passesSaved(lane), { masks: 2 });
  assert.equal(savedText(lane), "2 passes saved by masks");
  assert.equal(laneSpeedup(lane, ar).kind, "short");
  assert.equal(laneSpeedup(lane, ar).limit, 5 / 3);
  const cut = lane.at(lane.steps.length - 1);
  assert.deepEqual([loopsAt(cut), folds.tokens(cut), folds.forwards(cut)], [5, 5, 3]);
});
