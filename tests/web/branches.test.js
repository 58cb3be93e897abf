import assert from "node:assert/strict";
import { test } from "node:test";

import { branchName, branchOf } from "../../assets/web/views/compare/tray.js";
import { PLAIN, arOf, laneOf } from "./runs.js";

const parent = laneOf(PLAIN); // a b c e f g END behind the prompt 24 25 26
const other = arOf([1, 2, 9, 9]);
const branch = (given) => laneOf([], { header: { prompt_ids: [24, 25, 26, ...given], num_given: given.length } });

test("a branch is named by its parent, the token and the alternative", () => {
  const found = branchOf(branch([1, 2, 3, 4]), [other, parent]);
  assert.deepEqual([found.token, found.taken, found.instead], [4, "d", "e"]);
  assert.equal(branchName(found, { label: "Run 3" }), "Branch of Run 3 at token 4: “d” instead of “e”");
  assert.match(branchName(found, undefined), /^Branch of a run that is not pinned at token 4/);
});

test("a branch of a branch is told from its parent's parent", () => {
  const first = laneOf(PLAIN, { header: { prompt_ids: [24, 25, 26, 9], num_given: 1 } }); // goes on with a b c e f g
  const found = branchOf(branch([9, 1, 8]), [parent, first]);
  assert.deepEqual([found.token, found.taken, found.instead], [2, "h", "b"]);
});

test("what is no branch, or nobody's, has no parent", () => {
  assert.equal(branchOf(parent, [parent]), null);
  assert.equal(branchOf(branch([7, 7]), [parent]), null);
  assert.equal(branchOf(branch([1, 2, 3]), [parent]), null); // it takes what its parent took
});
