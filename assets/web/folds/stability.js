// Arranges the answers to one prompt in a tree. The text of a node continues its parent's text and is shared by all
// answers below the node. Pure; no DOM.

import { counted, whole } from "../core/words.js";

/**
 * Returns the root of the tree. Its text is the common beginning of all answers (it may be empty). An answer that
 * ends where others continue is a child without tokens. Children with more answers come first.
 * @param {readonly (readonly number[])[]} answers token ids
 * @param {number[]} [members] indices of the answers that this node contains
 * @param {number} [from] index of the first token of this node
 * @returns {AnswerNode}
 */
export function treeOf(answers, members = answers.map((_, i) => i), from = 0) {
  let to = from;
  const [first] = members;
  const isShared = (/** @type {number} */ at) =>
    at < answers[first].length && members.every((i) => answers[i][at] === answers[first][at]);
  if (members.length) while (isShared(to)) to += 1;
  /** @type {Map<number | undefined, number[]>} */
  const groups = new Map();
  for (const i of members) groups.set(answers[i][to], [...(groups.get(answers[i][to]) ?? []), i]);
  const children =
    groups.size > 1
      ? [...groups.values()]
          .sort((a, b) => b.length - a.length || a[0] - b[0])
          .map((group) => treeOf(answers, group, to))
      : [];
  return { from, to, members, children };
}

/**
 * Returns the leaves of a tree. Each leaf is a distinct answer.
 * @param {AnswerNode} node
 * @returns {AnswerNode[]}
 */
export const leavesOf = (node) => (node.children.length ? node.children.flatMap(leavesOf) : [node]);

/**
 * Describes the tree in one sentence; "" before two answers are complete.
 * @param {AnswerNode} tree
 */
export function stabilityFinding(tree) {
  const all = tree.members.length;
  if (all < 2) return "";
  const leaves = leavesOf(tree);
  if (leaves.length === 1) return `All ${whole(all)} answers are identical.`;
  const most = Math.max(...leaves.map(({ members }) => members.length));
  const repeated = most > 1 ? `, one of them from ${whole(most)} seeds` : "";
  return `${counted(leaves.length, "different answer")} from ${counted(all, "seed")}${repeated}; the first difference is at token ${whole(tree.to + 1)}.`;
}
