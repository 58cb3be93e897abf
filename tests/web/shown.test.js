// When panels are drawn anew: what they speak of changed.

import assert from "node:assert/strict";
import test from "node:test";

import { shownKey } from "../../assets/web/panels/shown.js";

test("panels are drawn anew with each step, and once more when a lane ends", () => {
  const lane = { name: "mars", isAr: false, steps: [{}], end: null };
  const view = { run: { id: "a", lanes: [lane] }, selected: null, shown: (each) => each };
  const keys = [shownKey(view)];
  lane.steps.push({});
  keys.push(shownKey(view));
  lane.end = { reason: "eos" };
  keys.push(shownKey(view));
  assert.equal(new Set(keys).size, 3);
});
