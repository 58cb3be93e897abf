// The KV cache slots of a lane in one pass: which are final and which the pass computes, as pending tokens, drafts or
// masks. Pure; no DOM.

import { FINAL, draftIds } from "../core/folds.js";

/**
 * Returns the number of tokens before the first generated one; 0 before the first step.
 * @param {Lane} lane
 */
export const promptTokens = (lane) => (lane.steps.length ? lane.steps[0].cursor + lane.steps[0].pending : 0);

/** @param {Lane} lane */
const isBlockwise = (lane) => lane.steps.some((step) => step.isCommit);

/**
 * Returns how many KV cache slots of each type there are in step `index`. prompt, output: slots that were final before
 * the step. pending, drafts, masks: slots that the step computed. cursor: number of final slots before the step. used:
 * number of slots including the step's input. after: number of final slots after the step.
 * @param {Lane} lane
 * @param {number} index
 */
export function cacheAt(lane, index) {
  const step = lane.steps[index];
  const prompt = Math.min(promptTokens(lane), step.cursor);
  const drafts = Math.max(0, step.cursor + step.pending - promptTokens(lane) - step.first);
  return {
    prompt,
    output: step.cursor - prompt,
    pending: step.pending - drafts,
    drafts,
    masks: step.fed - step.pending,
    cursor: step.cursor,
    used: step.cursor + step.fed,
    after: cursorAfter(lane, index, drafts),
    isCommit: step.isCommit,
  };
}

/**
 * @param {Lane} lane
 * @param {number} index
 * @param {number} drafts
 */
function cursorAfter(lane, index, drafts) {
  const step = lane.steps[index];
  const next = lane.steps[index + 1];
  if (next) return next.cursor;
  if (isBlockwise(lane)) return step.isCommit ? step.cursor + step.pending : step.cursor;
  const agreed = step.stop === "mismatch" ? step.count - 1 : Math.min(drafts, step.count);
  return step.cursor + step.pending - drafts + agreed;
}

/**
 * Returns the slots of step `index` in order, from the slot `before` positions before the cursor to the last slot of
 * the step's input. state: "prompt", "final", "pending", "draft" or "mask". id: the token in the slot, null if unknown.
 * proposal: the prediction of the slot, null if unknown; for masks it is known only in the group that was used. group:
 * for a mask, the number of the draft that its group follows (0: the token before the drafts). isTaken: whether the
 * prediction was accepted.
 * @param {Lane} lane
 * @param {number} index
 * @param {number} before
 */
export function slotsAt(lane, index, before) {
  const step = lane.steps[index];
  const { prompt, drafts, cursor, used } = cacheAt(lane, index);
  const first = cursor + step.pending - drafts - 1; // the slot whose prediction AR would use
  const slots = [];
  for (let slot = Math.max(0, cursor - before); slot < used; slot += 1) {
    const state =
      slot < prompt
        ? "prompt"
        : slot < cursor
          ? "final"
          : slot <= first
            ? "pending"
            : slot < cursor + step.pending
              ? "draft"
              : "mask";
    const { group, proposal } = predictionAt(step, slot - first, drafts);
    slots.push({
      slot,
      state,
      group,
      id: idOf(lane, index, slot, state, first),
      proposal,
      isTaken: slot >= first && slot - first < step.count,
    });
  }
  return slots;
}

/**
 * Returns the prediction of a slot and, for a mask, its group. offset: the slot's distance from the slot that predicts
 * AR's own next token.
 * @param {Step} step
 * @param {number} offset
 * @param {number} drafts
 */
function predictionAt(step, offset, drafts) {
  const isMask = offset > drafts;
  if (offset < 0) return { group: 0, proposal: null };
  if (!step.groups.length) return { group: isMask ? drafts : 0, proposal: step.proposals[offset] || null };
  if (!isMask) return { group: 0, proposal: offset < step.count ? step.proposals[offset] || null : null };
  let [group, index] = [0, offset - drafts - 1];
  while (group < step.groups.length - 1 && index >= step.groups[group]) index -= step.groups[group++];
  const isUsed = group === step.count - 1 && !FINAL.has(step.stop);
  return { group, proposal: isUsed ? step.proposals[step.count + index] || null : null };
}

/**
 * @param {Lane} lane
 * @param {number} index
 * @param {number} slot
 * @param {string} state
 * @param {number} first
 */
function idOf(lane, index, slot, state, first) {
  if (state === "mask") return null;
  const place = slot - promptTokens(lane);
  if (state === "draft") {
    const before = lane.steps[index - 1];
    return before ? (draftIds(before)[slot - first - 1] ?? null) : null;
  }
  if (place >= 0) return lane.tokens[place] ? lane.tokens[place].id : null;
  const ids = (lane.header && lane.header.prompt_ids) || [];
  return ids.length === promptTokens(lane) ? ids[slot] : null;
}
