import assert from "node:assert/strict";
import { test } from "node:test";

import { draftIds, drafterOf, folds } from "../../assets/web/core/folds.js";
import { factsOf, isVerified } from "../../assets/web/core/methods.js";
import { numChecked } from "../../assets/web/folds/proposals.js";
import { settingsText, sourceText, whyText } from "../../assets/web/text/card.js";
import { forward, laneOf } from "./runs.js";

// a | b c d | e: b is proposed by a mask of the target, c and d by the draft model; of the next two drafts none holds.
const ROWS = [
  forward(0, [[1, 0.99], [2, 0.95], [9, 0.2]], 1, "threshold", { num_drafted: 1, guessed: [3, 4], num_draft_forwards: 2 }), // prettier-ignore
  forward(1, [[2, 0.9], [3, 0.9], [4, 0.8], [5, 0.7]], 3, "mismatch", { num_pending: 4, guessed: [6, 7], num_draft_forwards: 3 }), // prettier-ignore
  forward(4, [[5, 0.9]], 1, "limit", { num_pending: 3 }),
];
const SETTINGS = { method: "speculative", draft: "small", masked: "both", block_size: 3 };
const lane = laneOf(ROWS, { settings: SETTINGS, end: "limit" }, "speculative");

test("drafts of masks come first, those of the draft model behind them", () => {
  assert.deepEqual(lane.steps.map(draftIds), [[2, 3, 4], [6, 7], []]);
  assert.deepEqual([0, 1, 2].map((place) => drafterOf(lane.steps[0], place)), ["masks", "draft model", "draft model"]); // prettier-ignore
});

test("a token says who proposed it, AR's own nobody", () => {
  const sources = lane.tokens.map((token) => sourceText(lane, token));
  assert.deepEqual(sources, ["", "by masks, forward 1", "by the draft model, forward 1", "by the draft model, forward 1", ""]); // prettier-ignore
});

test("forwards of the draft model are forwards of nobody's lane", () => {
  assert.equal(folds.forwards(lane), 3);
  assert.deepEqual(
    lane.steps.map((step) => step.draftForwards),
    [2, 3, 0],
  );
});

test("it is verified whatever the switch says, and its drafts are counted as checked", () => {
  assert.ok(isVerified(lane.settings));
  assert.ok(factsOf(lane.settings).isExact);
  assert.equal(numChecked(lane, 1), 3);
});

test("the card names the draft and what waits", () => {
  assert.equal(settingsText(lane.settings), "3 drafts of small · masks in both, if trained · τ 0.9");
  assert.match(whyText(lane, lane.steps[0]), /3 more drafts wait to be verified, 2 of them from the draft model/);
});
