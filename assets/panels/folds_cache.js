// The slots of a lane's cache at one forward: final, fed again, drafts, masks. Pure; no DOM.

// Tokens that were there before the first one was predicted.
export const promptTokens = (lane) => (lane.steps.length ? lane.steps[0].cursor + lane.steps[0].pending : 0);

export const isBlockwise = (lane) => lane.steps.some((step) => step.isCommit);

// What forward `index` found and fed. prompt + output are final; pending, drafts and masks were fed.
// after: the cursor once it was done, so what became final.
export function cacheAt(lane, index) {
  const step = lane.steps[index];
  const prompt = Math.min(promptTokens(lane), step.cursor);
  const drafts = Math.max(0, step.cursor + step.pending - promptTokens(lane) - step.first);
  return { prompt, output: step.cursor - prompt, pending: step.pending - drafts, drafts, masks: step.fed - step.pending,
    cursor: step.cursor, used: step.cursor + step.fed, after: cursorAfter(lane, index, drafts), isCommit: step.isCommit };
}

function cursorAfter(lane, index, drafts) {
  const step = lane.steps[index];
  const next = lane.steps[index + 1];
  if (next) return next.cursor;
  if (isBlockwise(lane)) return step.isCommit ? step.cursor + step.pending : step.cursor;
  const agreed = step.stop === "mismatch" ? step.count - 1 : Math.min(drafts, step.count);
  return step.cursor + step.pending - drafts + agreed;
}

// Slots one by one, from `before` ahead of the cursor to the last that was fed.
// {slot, state: "prompt" | "final" | "pending" | "draft" | "mask", id (null if not known), proposal: what it predicted}
export function slotsAt(lane, index, before) {
  const step = lane.steps[index];
  const { prompt, drafts, cursor, used } = cacheAt(lane, index);
  const first = cursor + step.pending - drafts - 1; // the slot whose prediction AR would make
  const slots = [];
  for (let slot = Math.max(0, cursor - before); slot < used; slot += 1) {
    const state = slot < prompt ? "prompt" : slot < cursor ? "final" : slot <= first ? "pending"
      : slot < cursor + step.pending ? "draft" : "mask";
    slots.push({ slot, state, id: idOf(lane, index, slot, state, first), proposal: slot >= first ? step.proposals[slot - first] || null : null,
      isTaken: slot >= first && slot - first < step.count });
  }
  return slots;
}

function idOf(lane, index, slot, state, first) {
  if (state === "mask") return null;
  const place = slot - promptTokens(lane);
  if (state === "draft") {
    const before = lane.steps[index - 1];
    const draft = before && before.proposals[before.count + slot - first - 1];
    return draft ? draft[0] : null;
  }
  if (place >= 0) return lane.tokens[place] ? lane.tokens[place].id : null;
  const ids = (lane.header && lane.header.prompt_ids) || [];
  return ids.length === promptTokens(lane) ? ids[slot] : null;
}

// What each forward from `from` to `to` fed: {index, cursor, pending, drafts, masks, isCommit}.
export function fedBy(lane, from, to) {
  const all = [];
  for (let i = Math.max(0, from); i < Math.min(to, lane.steps.length); i += 1) all.push({ index: i, ...cacheAt(lane, i) });
  return all;
}
