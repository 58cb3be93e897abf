import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { runColours } from "../../assets/web/core/colours.js";
import { draftIds, takenAhead, takerOf } from "../../assets/web/core/folds.js";
import { factsOf, isVerified, nameOf, tauAfter } from "../../assets/web/core/methods.js";
import { TAUS } from "../../assets/web/core/table.js";
import { numChecked } from "../../assets/web/folds/proposals.js";
import { sourceText } from "../../assets/web/text/reasons.js";
import { arOf, END, forward, laneOf, PLAIN } from "./runs.js";

describe("a draft model", () => {
  // a | b c d | e: b is proposed by a mask of the target, c and d by the draft model; of the next two drafts none holds.
  const ROWS = [
    forward(0, [[1, 0.99], [2, 0.95], [9, 0.2]], 1, "threshold", { num_drafted: 1, guessed: [3, 4], num_draft_forwards: 2 }), // prettier-ignore
    forward(1, [[2, 0.9], [3, 0.9], [4, 0.8], [5, 0.7]], 3, "mismatch", { num_pending: 4, guessed: [6, 7], num_draft_forwards: 3, sources: "mdd" }), // prettier-ignore
    forward(4, [[5, 0.9]], 1, "limit", { num_pending: 3 }),
  ];
  const SETTINGS = { method: "speculative", draft: "small", masked: "both", block_size: 3 };
  const lane = laneOf(ROWS, { settings: SETTINGS, end: "limit" }, "speculative");

  test("drafts of masks come first, those of the draft model behind them", () => {
    assert.deepEqual(lane.steps.map(draftIds), [[2, 3, 4], [6, 7], []]);
  });

  test("a token says who proposed it", () => {
    const sources = lane.tokens.map((token) => sourceText(lane, token));
    assert.deepEqual(sources, ["AR's own", "predicted by masks, pass 1", "by a draft model, pass 1", "by a draft model, pass 1", "AR's own"]); // prettier-ignore
  });

  test("it is verified whatever the switch says, and its drafts are counted as checked", () => {
    assert.ok(isVerified(lane.settings));
    assert.ok(factsOf(lane.settings).isExact);
    assert.equal(numChecked(lane, 1), 3);
  });
});

describe("block diffusion", () => {
  // Blocks of four: c first, then a, then b and d, and all leave; of the next block e and the end, of which nothing follows.
  const slots = (...ids) => ids.map((id) => [id, 0.9]);
  const ROWS = [
    forward(0, slots(1, 9, 3, 9), 0, "threshold", { taken: [2] }),
    forward(0, slots(1, 9, 3, 9), 1, "threshold", { taken: [0], cursor: 3, num_pending: 0, sources: "m" }),
    forward(1, slots(2, 3, 4), 3, "block", { taken: [0, 2], cursor: 3, num_pending: 0, sources: "mmm" }),
    forward(4, slots(5, END), 2, "eos", { taken: [0, 1], cursor: 3, num_pending: 4, sources: "mm" }),
  ];
  const lane = laneOf(ROWS, { settings: { method: "block_diffusion", tau: 0.9 } }, "block_diffusion");

  test("tokens leave in order, whatever the order in which they were taken", () => {
    assert.equal(lane.tokens.map((token) => token.text).join(""), "abcde");
    assert.deepEqual(lane.steps.map((step) => step.count), [0, 1, 3, 2]); // prettier-ignore
  });

  test("what was taken ahead stands behind the text, open places between", () => {
    assert.deepEqual([1, 2, 3].map((num) => takenAhead(lane.at(num))), [[null, null, 3, null], [null, 3, null], []]); // prettier-ignore
    assert.equal(laneOf(ROWS.slice(0, 1), { end: "" }).ghosts().drafts, "░░c░");
  });

  test("a token knows the forward that took it", () => {
    assert.deepEqual(lane.tokens.map((token) => takerOf(lane, token).index), [1, 2, 0, 2, 3, 3]); // prettier-ignore
    assert.equal(sourceText(lane, lane.tokens[2]), "filled by pass 1, before the text to its left");
    assert.equal(sourceText(lane, lane.tokens[0]), "");
  });
});

describe("AR + lookup", () => {
  const SETTINGS = { method: "mars", tau: 0, block_size: 1, lossless: true, lookup: true, mask_layout: "last" };

  test("it is known by its settings, whatever its lane is called", () => {
    assert.equal(nameOf(SETTINGS), "lookup");
    for (const other of [{ lossless: false }, { lookup: false }, { block_size: 2 }, { block_size: "auto" }])
      assert.equal(nameOf({ ...SETTINGS, ...other }), "mars");
    assert.equal(nameOf({}), "mars"); // a trace of before there were methods
    assert.equal(factsOf(SETTINGS).title, "AR + lookup");
    assert.ok(isVerified(SETTINGS));
    assert.equal(laneOf(PLAIN, { settings: SETTINGS }, "first").method, "lookup");
  });
});

test("a run has the colour of its method, and the original run next to its branch another one", () => {
  const race = ["mars", "jacobi", "speculative"].map((method) => laneOf(PLAIN, { settings: { method } }, method));
  assert.deepEqual([...race, arOf([1]), laneOf(PLAIN, {}, "first")].map(runColours.placeOf), [1, 3, 4, 0, 6]);
});

test("a mode brings its own τ, unless the visitor set another one", () => {
  const { lossless, unverified } = TAUS;
  assert.ok(lossless < unverified);
  assert.deepEqual(
    [tauAfter(false, lossless), tauAfter(true, unverified), tauAfter(false, 0.5), tauAfter(true, 0.5)],
    [unverified, lossless, 0.5, 0.5],
  );
});
