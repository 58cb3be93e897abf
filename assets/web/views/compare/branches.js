// A run that was made to go on from a token of another: which run that is, at which token, and what it took instead.
// Pure: lanes in, words out. A lane of the page that was branched from is remembered, for it need not be pinned.

import { identityOf } from "../../core/colours.js";
import { headerOf } from "../../core/folds.js";

const MOST = 6; // lanes that are remembered

/** @type {Lane[]} */
let remembered = [];

/** @param {Lane[]} lanes */
export function remember(lanes) {
  remembered = [...lanes, ...remembered.filter((lane) => !lanes.includes(lane))].slice(0, MOST);
}

/**
 * Null for a run that is no branch, or whose parent nobody knows: neither the page nor `lanes`.
 * @param {Lane} lane
 * @param {Lane[]} lanes
 * @returns {Branch | null}
 */
export function branchOf(lane, lanes) {
  const { num_given: numGiven, prompt_ids: ids } = headerOf(lane);
  if (!numGiven) return null;
  const parents = [...remembered, ...lanes].filter((each) => isParent(each, ids));
  const parent = parents.find((each) => each.isAr === lane.isAr) || parents[0];
  if (!parent) return null;
  const place = ids.length - 1 - headerOf(parent).prompt_ids.length;
  return {
    parent: identityOf(headerOf(parent)),
    token: place + 1,
    taken: lane.tokenName(ids[ids.length - 1]),
    instead: parent.tokenName(parent.tokens[place].id),
  };
}

/**
 * Whether a run goes with `ids` up to their last one, and there another way.
 * @param {Lane} lane
 * @param {number[]} ids
 */
function isParent(lane, ids) {
  const prompt = headerOf(lane).prompt_ids;
  const path = [...prompt, ...lane.tokens.map(({ id }) => id)];
  const last = ids.length - 1;
  return last >= prompt.length && last < path.length && path[last] !== ids[last] && ids.every((id, i) => i === last || id === path[i]); // prettier-ignore
}

/**
 * @param {Branch} given
 * @param {Pin | undefined} parent
 */
export function branchName({ token, taken, instead }, parent) {
  const of = parent ? parent.label : "a run that is not pinned";
  return `Branch of ${of} at token ${token}: “${taken}” instead of “${instead}”`;
}
