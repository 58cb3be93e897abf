// What the panel "Why here?" says of a proposal and of what came of it afterwards. Text only.

import { counted, probability } from "../../core/words.js";

/**
 * @param {Lane} lane
 * @param {number} id
 */
const quoted = (lane, id) => `“${lane.tokenName(id)}”`;

/**
 * What stands at the place of a proposal whose verdict is same or other.
 * @param {ProposalRow} row
 */
const written = (row) => /** @type {Token} */ (row.token);

/** @type {Record<string, string>} */
const FATES = {
  own: "taken, AR's own",
  taken: "taken",
  confirmed: "draft, AR agreed",
  drafted: "drafted",
  refused: "first refused",
  unseen: "not looked at",
  outbid: "the text gave more",
  dropped: "dropped",
  past: "behind the end",
};

/**
 * @param {Lane} lane
 * @param {ProposalRow} row
 */
export function fateText(lane, row) {
  if (row.fate === "replaced") return `AR's own, for the draft ${quoted(lane, Number(row.draft))}`;
  return FATES[row.fate];
}

/**
 * [kind, text] of what came afterwards: kind is same, other or none.
 * @param {Lane} lane
 * @param {ProposalRow} row
 * @returns {[kind: string, text: string]}
 */
export function laterText(lane, row) {
  const { token } = row;
  if (row.verdict === "same") return ["same", `✓ the same, forward ${written(row).step.index + 1}`];
  if (row.verdict === "other") {
    const { id, step } = written(row);
    return ["other", `≠ ${quoted(lane, id)} instead, forward ${step.index + 1}`];
  }
  if (row.verdict === "unwritten") return ["none", lane.end ? "the run ended" : "not written yet"];
  if (row.verdict === "unknown") return ["none", row.fate === "dropped" ? "" : "? other text before it"];
  if (row.fate === "taken" && token && token.check) return checkText(lane, token.id, token.check);
  return ["none", ""];
}

/**
 * The next forward fed this token as a real one, and so says what AR would have chosen.
 * @param {Lane} lane
 * @param {number} id
 * @param {{ id: number, p: number }} check
 * @returns {[kind: string, text: string]}
 */
function checkText(lane, id, check) {
  if (check.id === id) return ["same", `✓ AR too, ${probability(check.p)}`];
  return ["other", `≠ AR: ${quoted(lane, check.id)}, ${probability(check.p)}`];
}

/**
 * What came in the place of the proposals that were not taken, in one sentence; empty where that cannot be said.
 * @param {Lane} lane
 * @param {ProposalRow[]} rows
 */
export function afterText(lane, rows) {
  const dropped = rows.filter((row) => row.fate === "dropped").length;
  if (dropped)
    return dropped === 1
      ? "The proposal behind it continued the draft and was dropped."
      : `The ${dropped} proposals behind it continued the draft and were dropped.`;
  const left = rows.filter((row) => row.fate === "refused" || row.fate === "unseen");
  if (!left.length)
    return draftsText(
      lane,
      rows.filter((row) => row.fate === "drafted"),
    );
  const { verdict } = left[0];
  if (verdict === "unwritten")
    return lane.end
      ? "The run ended before anything stood in its place."
      : "What comes in its place is not written yet.";
  if (verdict === "other")
    return `Forward ${written(left[0]).step.index + 1} put ${quoted(lane, written(left[0]).id)} in its place.`;
  if (verdict !== "same") return "";
  const first = left.findIndex((row) => row.verdict !== "same");
  const num = first < 0 ? left.length : first;
  if (num === 1)
    return `Forward ${written(left[0]).step.index + 1} then wrote the same token: the refused proposal would have been right.`;
  return `The run then wrote the same ${num} tokens: the refused proposals would have been right.`;
}

/**
 * @param {Lane} lane
 * @param {ProposalRow[]} drafts
 */
function draftsText(lane, drafts) {
  const judged = drafts.filter((row) => row.verdict !== "unwritten");
  if (!judged.length) return "";
  const wrong = drafts.findIndex((row) => row.verdict === "other");
  if (wrong < 0) return `AR then agreed with ${drafts.length === 1 ? "the draft" : `all ${drafts.length} drafts`}.`;
  const agreed = wrong ? `AR then agreed with ${counted(wrong, "draft")} and put` : "AR then put";
  return `${agreed} ${quoted(lane, written(drafts[wrong]).id)} in the place of ${quoted(lane, drafts[wrong].id)}.`;
}
