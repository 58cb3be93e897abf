// The fate of each proposal of a forward, and what the run wrote at its place afterwards. Pure: a lane in, plain values
// out.

import { FINAL, draftIds, lastOf } from "../core/folds.js";
import { isVerified } from "../core/methods.js";

/** @param {Step} step */
export const isLossless = (step) => isVerified(step.settings) && step.settings.method !== "ar";

/**
 * Returns the ids that ended a text of these lanes: the only EOS tokens that a trace shows.
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
 * Returns the number of the previous forward's drafts that were fed with this one, to be compared with AR's choice.
 * @param {Lane} lane
 * @param {number} index
 */
export function numChecked(lane, index) {
  const [before, step] = [lane.steps[index - 1], lane.steps[index]];
  if (!before || !isLossless(step)) return 0;
  const limit = step.settings.max_new_tokens;
  const room = Number.isFinite(limit) ? limit - step.first - 1 : Infinity;
  return Math.max(0, Math.min(draftIds(before).length, room, step.pending - 1));
}

/**
 * Returns the fate of proposal `i`: own: AR's own choice, accepted at any confidence. taken: accepted. confirmed: a
 * draft that AR agreed with. replaced: AR's token in place of another draft. drafted: waits for verification. refused:
 * the first below the threshold. unseen: after that one. outbid: prompt lookup found more. dropped: after a wrong
 * draft. past: after EOS.
 * @param {Step} step
 * @param {number} i
 * @param {number} numDrafts
 * @param {number | undefined} draft
 * @param {Set<number>} ends
 * @returns {string}
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
 * Whether a wrong draft invalidated the proposals after it, which continue from the masks after the last good one.
 * @param {Step} step
 */
export const isDropped = (step) =>
  step.stop === "mismatch" && !step.groups[step.count - 1] && step.settings?.method !== "jacobi"; // in Jacobi decoding they are the next guesses

/**
 * Compares a proposal with what the run wrote at its place. While the text before it is the one that it continued: same
 * or other; else unknown; unwritten if there is no token yet.
 * @param {Token | undefined} token
 * @param {number} id
 * @param {boolean} isSame
 */
function judged(token, id, isSame) {
  if (!isSame) return "unknown";
  if (!token) return "unwritten";
  return token.id === id ? "same" : "other";
}

/**
 * Returns every proposal of a forward, in order: {place, id, confidence, runnersUp, draft, fate, token, verdict}.
 * token: the one now at its place. draft: the id that AR replaced there. verdict: null for an emitted token.
 * @param {Lane} lane
 * @param {number} index
 * @param {Set<number>} [ends]
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
    const what = fate(step, i, numDrafts, draft, ends);
    const hasVerdict = i >= step.count && what !== "past";
    const verdict = hasVerdict ? judged(token, id, isSame && what !== "dropped") : null;
    if (i >= step.count && token && token.id !== id) isSame = false;
    return {
      place,
      id,
      confidence,
      runnersUp: runnersUp || [],
      draft: what === "replaced" ? draft : undefined,
      fate: what,
      token,
      verdict,
    };
  });
}
