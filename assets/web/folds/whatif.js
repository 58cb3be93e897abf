// Evaluates one recorded pass with another threshold. This is exact for the pass, because all of its proposals and
// confidences were recorded; later passes would have continued another text. Pure; no DOM.

import { FINAL, draftIds } from "../core/folds.js";
import { factsOf } from "../core/methods.js";
import { isDropped, isLossless, numChecked } from "./proposals.js";

/**
 * Returns how many proposals are accepted from left to right: the first one always, further ones while their confidence
 * is at least tau. NaN is not accepted.
 * @param {readonly number[]} confidences @param {number} tau
 */
export function acceptPrefix(confidences, tau) {
  let count = 0;
  for (const confidence of confidences) {
    if (count && !(confidence >= tau)) break;
    count += 1;
  }
  return count;
}

/**
 * Returns the number of tokens that a recorded pass would accept with another threshold `tau` or, if its method
 * verifies drafts, the number of tokens that it would draft.
 * @param {Lane} lane @param {number} index @param {number} tau @param {Set<number>} ends
 */
export function countWithTau(lane, index, tau, ends) {
  const step = lane.steps[index];
  if (factsOf(step.settings).isGuessing) return draftIds(step).length; // guesses, independent of τ
  if (!isLossless(step)) {
    if (!factsOf(step.settings).obeys.includes("tau")) return step.count;
    return acceptedUntilEnd(step.proposals, tau, ends);
  }
  if (FINAL.has(step.stop) || isDropped(step)) return step.lookedUp.length; // masks draft nothing in these steps
  const would = maskDrafts(lane, step, tau, ends);
  const allowed = maskDrafts(lane, step, step.settings.tau, ends);
  const looked = step.lookedUp.length;
  // The step used drafts of prompt lookup, although its masks offered `allowed` drafts. If `tau` lets the masks offer
  // more, the longer draft is used: that of the masks or that of prompt lookup.
  if (looked) return would <= allowed ? looked : Math.max(would, looked);
  return step.drafted < allowed ? Math.min(would, step.drafted) : would; // automatic B limits drafts at any threshold
}

/**
 * Returns the number of drafts that the masks of a step propose with threshold `tau`, not counting AR's own token.
 * @param {Lane} lane @param {Step} step @param {number} tau @param {Set<number>} ends
 */
function maskDrafts(lane, step, tau, ends) {
  const firstOwn = step.stop === "mismatch" ? step.count - 1 : numChecked(lane, step.index);
  return acceptedUntilEnd(step.proposals.slice(firstOwn), tau, ends, 1) - 1;
}

/**
 * Returns how many proposals are accepted, up to the first one in `ends` at or after the index `from`.
 * @param {Proposal[]} proposals @param {number} tau @param {Set<number>} ends @param {number} [from]
 */
export function acceptedUntilEnd(proposals, tau, ends, from = 0) {
  const confidences = proposals.map((proposal) => proposal[1]);
  const count = acceptPrefix(confidences, tau);
  const end = proposals.findIndex(([id], i) => i >= from && ends.has(id));
  return end >= 0 ? Math.min(count, end + 1) : count;
}
