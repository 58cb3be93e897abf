import assert from "node:assert/strict";
import { test } from "node:test";

import { runColours } from "../../assets/web/core/colours.js";
import { arOf, laneOf, PLAIN } from "./runs.js";

test("a run has the colour of its method, and the original run next to its branch another one", () => {
  const race = ["mars", "jacobi", "speculative"].map((method) => laneOf(PLAIN, { settings: { method } }, method));
  assert.deepEqual([...race, arOf([1]), laneOf(PLAIN, {}, "first")].map(runColours.placeOf), [1, 3, 4, 0, 6]);
});
