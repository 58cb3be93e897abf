// The predictions of each layer in one pass: builds the request to the server, and arranges the answer in columns.
// Pure; no DOM.

import { draftIds } from "../core/folds.js";
import { proposalRows } from "./proposals.js";
import { promptTokens } from "./slots.js";

/**
 * Returns the input of pass `index` of a lane, so that the server can run this pass again (`Fed` in
 * mars_runtime/layers.py).
 * @param {Lane} lane
 * @param {number} index
 */
export function fedOf(lane, index) {
  const step = lane.steps[index];
  const prompt = lane.header?.prompt_ids || [];
  const before = lane.ids.slice(0, step.first);
  const drafts = index ? draftIds(lane.steps[index - 1]) : [];
  const groups = step.groups.length ? step.groups.slice(0, -1) : [];
  const last = step.fed - step.pending - groups.reduce((sum, size) => sum + size, 0);
  return {
    checkpoint: lane.header?.checkpoint ?? "",
    ids: [...prompt, ...before, ...drafts].slice(0, step.cursor + step.pending),
    cursor: step.cursor,
    groups: [...groups, last],
    text: [...prompt, ...lane.ids],
  };
}

/**
 * Returns why the layers of a pass cannot be shown, "" if they can. The layers cannot be shown for block diffusion,
 * which attends in both directions within a block, or for a recording without prompt tokens.
 * @param {Lane} lane
 * @param {Step} step
 */
export function whyNot(lane, step) {
  if (step.settings.method === "block_diffusion")
    return "The layers of a block with attention in both directions cannot be shown.";
  if (!lane.header?.prompt_ids?.length) return "This recording does not contain the tokens of its prompt.";
  return "";
}

/**
 * Returns the columns of a pass from left to right: first the real tokens, then the masks with the predictions that the
 * pass used. Each mask is followed by the real token that the run later wrote at its position, if that is known. kind:
 * "token", "mask" or "real" (the token after a mask). number: number of the mask, from 1. id: the input token, null for
 * a mask. proposed: the token that the mask proposed if a sampler head or a penalty changed the last layer's
 * prediction, otherwise null. fate: what became of the mask's proposal, "" if it made none.
 * @param {Lane} lane
 * @param {number} index
 * @param {ToldLayers} told
 */
export function columnsOf(lane, index, { columns, real, counted }) {
  const fed = fedOf(lane, index);
  const rows = proposalRows(lane, index);
  const tokens = columns
    .filter(({ root }) => root === null)
    .map((column) => ({ ...column, kind: "token", number: 0, id: fed.ids[column.position], proposed: null, fate: "" }));
  const masks = counted.flatMap((place, i) => {
    const column = columns[place];
    const row = rows.find(({ place: index }) => index === column.position + 1 - promptTokens(lane));
    const proposed = row && row.id !== column.says[column.says.length - 1][0] ? row.id : null;
    const mask = { ...column, kind: "mask", number: i + 1, id: null, proposed, fate: row ? fateOf(row) : "" };
    const twin = real.find(({ position }) => position === column.position);
    if (!twin) return [mask];
    return [mask, { ...twin, kind: "real", number: i + 1, id: fed.text[twin.position], proposed: null, fate: "" }];
  });
  return [...tokens, ...masks];
}

/**
 * Returns what became of a mask's proposal, in one or a few words.
 * @param {ProposalRow} row
 */
function fateOf({ fate, verdict }) {
  if (fate === "taken" || fate === "confirmed" || fate === "own") return "accepted";
  if (fate === "drafted") return { same: "accepted", unwritten: "waits" }[verdict ?? ""] ?? "rejected";
  if (fate === "outbid") return "not used";
  if (fate === "past") return "after the end";
  return "rejected";
}
