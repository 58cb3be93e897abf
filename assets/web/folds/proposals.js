// What became of each proposal of a pass (its fate), and what the run later wrote at its position. Pure; no DOM.

import { FINAL, draftIds, lastOf } from "../core/folds.js";
import { factsOf, isVerified } from "../core/methods.js";

/** Returns whether a step's method drafts tokens and verifies all of them. @param {Step} step */
export const isLossless = (step) => isVerified(step.settings) && !factsOf(step.settings).isReference;

/**
 * Returns the ids of the tokens that ended these lanes' texts. A trace does not list other EOS tokens.
 * @param {Lane[]} lanes
 */
export function endIds(lanes) {
  const ids = new Set();
  for (const lane of lanes) {
    const last = lane.steps.at(-1);
    if (last && last.stop === "eos" && lane.tokens.length) ids.add(lastOf(lane.tokens).id);
  }
  return ids;
}

/**
 * Returns how many drafts of the previous step were input of step `index`, which compares them with AR's choices.
 * @param {Lane} lane @param {number} index
 */
export function numChecked(lane, index) {
  const [before, step] = [lane.steps[index - 1], lane.steps[index]];
  if (!before || !isLossless(step)) return 0;
  const limit = step.settings.max_new_tokens;
  const mostDrafts = Number.isFinite(limit) ? limit - step.first - 1 : Infinity;
  return Math.max(0, Math.min(draftIds(before).length, mostDrafts, step.pending - 1));
}

/**
 * Returns what became of proposal `i` of a step: - own: AR's own choice, which is accepted at any confidence - taken:
 * accepted because of its confidence - confirmed: a draft that AR agreed with - replaced: AR's token, emitted in place
 * of a different draft - drafted: waits for verification by the next step - refused: the first proposal below the
 * threshold - unseen: after a refused proposal - outbid: not drafted because prompt lookup proposed more tokens -
 * dropped: after a wrong draft - past: after EOS
 * @param {Step} step @param {number} i @param {number} numDrafts @param {number | undefined} draft
 * @param {Set<number>} ends
 */
function fate(step, i, numDrafts, draft, ends) {
  const isOver = FINAL.has(step.stop);
  if (i < step.count) {
    if (i < numDrafts) return step.proposals[i][0] === draft ? "confirmed" : "replaced";
    return i === numDrafts ? "own" : "taken";
  }
  if (isOver) return "past";
  if (isDropped(step)) return "dropped";
  if (step.lookedUp.length) return "outbid";
  const handed = step.count + step.drafted;
  if (i < handed) return "drafted";
  const last = step.proposals[handed - 1];
  if (step.drafted && last && ends.has(last[0])) return "past";
  return i === handed ? "refused" : "unseen";
}

/**
 * Returns whether a wrong draft invalidated the unused proposals of a step. The proposals stay valid if the pass had
 * masks after the last correct token.
 * @param {Step} step
 */
export const isDropped = (step) =>
  step.stop === "mismatch" && !step.groups[step.count - 1] && !factsOf(step.settings).isGuessing; // otherwise they are the next guesses

/**
 * Compares a proposal with the token that the run wrote at its position: "same", "other", "unwritten" if there is no
 * token yet, or "unknown" if the run's text before it differs from the text that the proposal continued (not isSame).
 * @param {Token | undefined} token @param {number} id @param {boolean} isSame
 */
function verdictOf(token, id, isSame) {
  if (!isSame) return "unknown";
  if (!token) return "unwritten";
  return token.id === id ? "same" : "other";
}

/**
 * Returns every proposal of step `index` in order. place: its index among the lane's tokens. token: the token that the
 * run wrote at that index. draft: id of the draft that AR replaced. verdict: result of `verdictOf`, null for an emitted
 * token.
 * @param {Lane} lane @param {number} index @param {Set<number>} [ends]
 */
export function proposalRows(lane, index, ends = new Set()) {
  const step = lane.steps[index];
  const before = lane.steps[index - 1];
  const numDrafts = numChecked(lane, index);
  let isSame = true;
  return step.proposals.map(([id, confidence, runnersUp], i) => {
    const place = step.first + i;
    const draft = i < numDrafts ? draftIds(before)[i] : undefined;
    const token = lane.tokens[place];
    const outcome = fate(step, i, numDrafts, draft, ends);
    const hasVerdict = i >= step.count && outcome !== "past";
    const verdict = hasVerdict ? verdictOf(token, id, isSame && outcome !== "dropped") : null;
    if (i >= step.count && token && token.id !== id) isSame = false;
    return {
      place,
      id,
      confidence,
      runnersUp: runnersUp || [],
      draft: outcome === "replaced" ? draft : undefined,
      fate: outcome,
      token,
      verdict,
    };
  });
}
