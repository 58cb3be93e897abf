import assert from "node:assert/strict";
import { test } from "node:test";

import { momentOf, slotRun } from "../../assets/web/explain/slots.js";
import { cacheAt, fedBy, promptTokens, slotsAt } from "../../assets/web/folds/slots.js";
import { LOSSLESS, LOSSLESS_SETTINGS, laneOf, linesOf } from "./runs.js";

const lane = laneOf(LOSSLESS, { ...LOSSLESS_SETTINGS, end: "limit" });

test("the prompt's last token is fed with the first forward", () => {
  assert.equal(promptTokens(lane), 3);
  assert.deepEqual(cacheAt(lane, 0), {
    prompt: 2,
    output: 0,
    pending: 1,
    drafts: 0,
    masks: 2,
    cursor: 2,
    used: 5,
    after: 3,
    isCommit: false,
  });
});

test("drafts are fed as real tokens and told from what is pending", () => {
  const { output, pending, drafts, masks } = cacheAt(lane, 1);
  assert.deepEqual({ output, pending, drafts, masks }, { output: 0, pending: 1, drafts: 1, masks: 2 });
  assert.deepEqual(
    slotsAt(lane, 1, 1).map(({ slot, state, id }) => [slot, state, id]),
    [[2, "prompt", 26], [3, "pending", 1], [4, "draft", 2], [5, "mask", null], [6, "mask", null]], // prettier-ignore
  );
});

test("what each forward fed, within bounds", () => {
  assert.deepEqual(fedBy(lane, -3, 99).map(({ index, cursor }) => [index, cursor]), [[0, 2], [1, 3], [2, 5]]); // prettier-ignore
});

test("a picture's forwards hold the same slots, counted from the prompt's end", () => {
  const run = slotRun("Lossless", linesOf(LOSSLESS, LOSSLESS_SETTINGS));
  assert.deepEqual(run.emitted, [1, 2, 3, 4]);
  assert.deepEqual(run.forwards[1].fed, [
    { place: 0, kind: "pending", id: 1 },
    { place: 1, kind: "draft", id: 2 },
    { place: 2, kind: "mask", id: null },
    { place: 3, kind: "mask", id: null },
  ]);
  assert.deepEqual(run.forwards.map(({ predicted }) => predicted.map(({ fate }) => fate)), [
    ["accepted", "draft", "refused"],
    ["agreed", "accepted", "draft", "draft"],
    ["replaced", "dropped", "dropped"],
  ]); // prettier-ignore
});

test("a moment is fed, then read", () => {
  const run = slotRun("Lossless", linesOf(LOSSLESS, LOSSLESS_SETTINGS));
  const fed = momentOf(run, 1, true);
  assert.deepEqual([fed.now.index, fed.isRead, fed.tokens, fed.fed], [1, false, 1, 7]);
  const over = momentOf(run, 3, false);
  assert.deepEqual([over.now.index, over.isRead, over.tokens, over.isOver], [2, true, 4, true]);
});
