import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { leavesOf, stabilityFinding, treeOf } from "../../assets/web/folds/stability.js";

const node = (from, to, members, ...children) => ({ from, to, members, children });

describe("the tree of several answers", () => {
  test("answers that are identical are one node", () => {
    const tree = treeOf([[5, 6], [5, 6], [5, 6]]); // prettier-ignore
    assert.deepEqual(tree, node(0, 2, [0, 1, 2]));
    assert.equal(stabilityFinding(tree), "All 3 answers are identical.");
  });

  test("each difference begins a node for every continuation, the most frequent first", () => {
    const tree = treeOf([
      [1, 2, 3, 9],
      [1, 2, 4, 8, 7],
      [1, 2, 4, 8, 6],
      [1, 2, 3, 9],
      [1, 2, 4, 5],
    ]);
    const inner = node(2, 3, [1, 2, 4], node(3, 4, [1, 2], node(4, 5, [1]), node(4, 5, [2])), node(3, 4, [4]));
    assert.deepEqual(tree, node(0, 2, [0, 1, 2, 3, 4], inner, node(2, 4, [0, 3])));
    assert.deepEqual(
      leavesOf(tree).map(({ members }) => members),
      [[1], [2], [4], [0, 3]],
    );
    assert.equal(
      stabilityFinding(tree),
      "4 different answers from 5 seeds, one of them from 2 seeds; the first difference is at token 3.",
    );
  });

  test("an answer that ends where others continue is a node without tokens", () => {
    const tree = treeOf([[1, 2], [1]]);
    assert.deepEqual(tree, node(0, 1, [0, 1], node(1, 2, [0]), node(1, 1, [1])));
    assert.equal(stabilityFinding(tree), "2 different answers from 2 seeds; the first difference is at token 2.");
  });

  test("nothing in common, one answer, none", () => {
    assert.deepEqual(treeOf([[1], [2]]), node(0, 0, [0, 1], node(0, 1, [0]), node(0, 1, [1])));
    assert.deepEqual(treeOf([[1, 2]]), node(0, 2, [0]));
    assert.equal(stabilityFinding(treeOf([[1, 2]])), "");
    assert.deepEqual(treeOf([]), node(0, 0, []));
  });
});
