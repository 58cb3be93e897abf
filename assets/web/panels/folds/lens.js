// The groups in which a finished text would stand under another threshold. Pure: a lane and what `whatIf` found in,
// plain values out. The text is the recorded one: a group ends where the other threshold would have written another.

import { acceptPrefix } from "./whatif.js";
import { isLossless } from "./why.js";

/**
 * Groups in order, which hold every token once. isGuess: behind the first difference; isFirst: the group of that
 * difference, the last that is exact.
 * @param {Lane} lane
 * @param {WhatIf} found
 * @param {number} tau
 */
export function regrouped(lane, found, tau) {
  /** @type {LensGroup[]} */
  const groups = [];
  let place = 0;
  for (const step of lane.steps) {
    const end = step.first + step.count;
    while (place < end) {
      const count = Math.min(reach(lane, step, place - step.first, found.cells, tau), lane.tokens.length - place);
      const isExact = found.first < 0 || step.index < found.exact.forwards;
      const isFirst = found.first >= 0 && step.index === found.exact.forwards - 1 && place === step.first;
      groups.push({ first: place, count, isGuess: !isExact || (place > step.first && found.first >= 0), isFirst });
      place += count;
    }
  }
  return groups;
}

/**
 * How many tokens, at least one, a forward pass would have accepted if it had begun at number `from` of its tokens.
 * @param {Lane} lane
 * @param {Step} step
 * @param {number} from
 * @param {WhatIfCell[]} cells
 * @param {number} tau
 */
function reach(lane, step, from, cells, tau) {
  if (isLossless(step)) return Math.max(1, confirmed(lane, step, from, cells, tau));
  const proposals = step.proposals.slice(from);
  const confidences = proposals.map((proposal) => proposal[1]);
  const count = from ? acceptPrefix(confidences, tau) : cells[step.index].now;
  const other = proposals.findIndex(([id], i) => lane.tokens[step.first + from + i]?.id !== id);
  return Math.max(1, other < 0 ? count : Math.min(count, other));
}

/**
 * In a lossless run: the drafts that would have been made and that AR confirms, and AR's own token behind them.
 * @param {Lane} lane
 * @param {Step} step
 * @param {number} from
 * @param {WhatIfCell[]} cells
 * @param {number} tau
 */
function confirmed(lane, step, from, cells, tau) {
  const before = lane.steps[step.index - 1];
  const gain = before && isLossless(before) ? cells[before.index].gain : 0;
  if (!from || gain >= 0) return step.count + gain - from;
  const drafts = before.proposals.slice(before.count + from, before.count + step.count - 1);
  const doubted = drafts.findIndex((proposal) => !(proposal[1] >= tau));
  return (doubted < 0 ? drafts.length : doubted) + 1;
}
