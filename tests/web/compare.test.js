import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { best, comparisonFinding, isReadAlike, remarks } from "../../assets/web/views/compare/figures.js";
import { differenceText, laneAlignment } from "../../assets/web/views/compare/texts.js";
import { branchName, branchOf } from "../../assets/web/views/compare/tray.js";
import { arOf, forward, laneOf, PLAIN } from "./runs.js";

describe("branches", () => {
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

  test("what a branch kept of its parent is shared, not missing", () => {
    const goesOn = laneOf([forward(0, [[5, 0.9]], 1, "block"), forward(1, [[6, 0.9]], 1, "block")], {
      header: { prompt_ids: [24, 25, 26, 1, 2, 3, 9], num_given: 4 }, // a b c i, then e f
    });
    const { pairs, whole } = laneAlignment(parent, goesOn); // a b c e f g END
    assert.deepEqual([[...pairs.own], [...pairs.missing]], [[], [5, 6]]);
    assert.deepEqual([...pairs.toBase], [3, 4]);
    assert.deepEqual([...pairs.fromBase].slice(3, 5), [0, 1]);
    assert.equal(differenceText(whole, "A"), "different from token 4 onwards: 1 of 6 tokens not in A");
    const back = laneAlignment(goesOn, parent);
    assert.deepEqual([[...back.pairs.own], [...back.pairs.missing]], [[5, 6], []]);
  });

  test("what is no branch, or nobody's, has no parent", () => {
    assert.equal(branchOf(parent, [parent]), null);
    assert.equal(branchOf(branch([7, 7]), [parent]), null);
    assert.equal(branchOf(branch([1, 2, 3]), [parent]), null); // it takes what its parent took
  });
});

describe("prompts that were read before", () => {
  const warm = () => laneOf(PLAIN, { prefill: { num_reused: 96 } });

  test("runs that had more or less of their prompts ready are not compared by their first token", () => {
    const alike = [warm(), warm()];
    assert.equal(isReadAlike(alike), true);
    assert.equal(remarks(alike).join(" ").includes("first token"), false);
    const unlike = [warm(), laneOf(PLAIN)];
    assert.equal(isReadAlike(unlike), false);
    assert.match(remarks(unlike).join(" "), /cached \(tokens: A 96, B 0\)/);
  });

  test("a cut knows what its lane reused", () => {
    assert.equal(warm().at(2).reused, 96);
  });
});

test("a comparison says which run wrote AR's text in the fewest passes, and where the others differ", () => {
  const ar = arOf([1, 2, 3, 4, 5]);
  const same = laneOf([forward(0, [[1, 1], [2, 1]], 2, "block"), forward(2, [[3, 1], [4, 1], [5, 1]], 3, "limit")]); // prettier-ignore
  const other = arOf([1, 9, 3, 4, 5]);
  assert.equal(
    comparisonFinding([ar, same, other]),
    "B wrote the same text as A in 60 % fewer forward passes; C differs from A at token 2.",
  );
  assert.equal(comparisonFinding([same, ar]), "A wrote the same text as B in 60 % fewer forward passes.");
  assert.equal(comparisonFinding([ar]), "");
});

test("of values that differ the best are marked, of equal or missing ones none", () => {
  const found = (values, better) => best(values, better);
  assert.deepEqual(found([1, 3, 2], 1), [1]);
  assert.deepEqual(found([1, 3, 1], -1), [0, 2]);
  for (const none of [found([2, 2], 1), found([1, NaN], 1), found([1, 2], 0)]) assert.deepEqual(none, []);
});
