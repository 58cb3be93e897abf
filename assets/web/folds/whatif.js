// Evaluates a recorded run with another threshold. A single pass can be evaluated exactly, because all of its proposals
// and confidences were recorded. After the first pass that accepts a different number of tokens, later passes would
// have continued a different text, so the result for the whole run is an estimate. Pure; no DOM.

import { FINAL, draftIds } from "../core/folds.js";
import { upToLoop } from "../core/loops.js";
import { factsOf } from "../core/methods.js";
import { isDropped, isLossless, numChecked, proposalRows } from "./proposals.js";

const REACH = 40; // passes after which the positions of a pass's proposals have been written and checked

/**
 * Returns how many proposals are accepted from left to right: the first one always, further ones while their confidence
 * is at least tau. NaN is not accepted.
 * @param {readonly number[]} confidences
 * @param {number} tau
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
 * Returns the result of a recorded step with another threshold `tau`: the number of tokens that it emits or, in a
 * lossless run, that it drafts.
 * @param {Lane} lane
 * @param {number} index
 * @param {number} tau
 * @param {Set<number>} ends
 */
export function judgeAgain(lane, index, tau, ends) {
  const step = lane.steps[index];
  if (step.settings?.method === "jacobi") return draftIds(step).length; // guesses, independent of τ
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
 * @param {Lane} lane
 * @param {Step} step
 * @param {number} tau
 * @param {Set<number>} ends
 */
function maskDrafts(lane, step, tau, ends) {
  const firstOwn = step.stop === "mismatch" ? step.count - 1 : numChecked(lane, step.index);
  return acceptedUntilEnd(step.proposals.slice(firstOwn), tau, ends, 1) - 1;
}

/**
 * @param {Proposal[]} proposals
 * @param {number} tau
 * @param {Set<number>} ends
 * @param {number} [from]
 */
function acceptedUntilEnd(proposals, tau, ends, from = 0) {
  const confidences = proposals.map((proposal) => proposal[1]);
  const count = acceptPrefix(confidences, tau);
  const end = proposals.findIndex(([id], i) => i >= from && ends.has(id));
  return end >= 0 ? Math.min(count, end + 1) : count;
}

/**
 * Evaluates one step with threshold `tau`. Fields of the result:
 * - then, now: number of tokens accepted (in a lossless run: drafted) in the run, and with `tau`
 * - same, other, unknown: numbers of proposals that only `tau` accepts for which the run wrote the same token, another
 *   token, or no token that can be compared
 * - checked, wrong: number of tokens that only the run accepted and for which AR's choice is known, and how many of
 *   these differ from AR's choice
 * - agreedThen, agreedNow: number of drafts that AR confirmed in the run, and would confirm with `tau`
 * - gain: additional tokens of the step with `tau`
 * @param {Lane} lane
 * @param {number} index
 * @param {number} tau
 * @param {Set<number>} ends
 */
export function cellOf(lane, index, tau, ends) {
  const step = lane.steps[index];
  const drafts = isLossless(step);
  const then = drafts ? draftIds(step).length : step.count;
  const now = judgeAgain(lane, index, tau, ends);
  const none = { same: 0, other: 0, unknown: 0, checked: 0, wrong: 0, agreedThen: 0, agreedNow: 0 };
  const cell = { index, isLossless: drafts, then, now, ...none, gain: now - then };
  if (drafts && step.lookedUp.length) countLookedUp(cell, lane, step);
  else if (drafts && (then || now)) countDrafts(cell, proposalRows(lane, index, ends).slice(step.count));
  else if (now > then) count(cell, proposalRows(lane, index, ends).slice(then, now));
  else if (now < then) check(cell, lane.tokens.slice(step.first + now, step.first + then));
  return cell;
}

/**
 * Counts the confirmed drafts of a step that used prompt lookup. These drafts are assumed to be the same with the other
 * threshold; if that threshold lets the masks propose more tokens, the true result is unknown.
 * @param {WhatIfCell} cell
 * @param {Lane} lane
 * @param {Step} step
 */
function countLookedUp(cell, lane, step) {
  const first = step.first + step.count;
  const wrong = step.lookedUp.findIndex((id, i) => lane.tokens[first + i]?.id !== id);
  cell.agreedThen = wrong < 0 ? step.lookedUp.length : wrong;
  cell.agreedNow = cell.agreedThen;
  cell.gain = 0;
}

/**
 * Counts the confirmed drafts of a lossless step. AR confirms drafts up to the first one that differs from the run's
 * text, because that text is AR's.
 * @param {WhatIfCell} cell
 * @param {ProposalRow[]} rows
 */
function countDrafts(cell, rows) {
  const agreed = rows.findIndex((row) => row.verdict !== "same");
  const most = agreed < 0 ? rows.length : agreed;
  cell.agreedThen = Math.min(cell.then, most);
  cell.agreedNow = Math.min(cell.now, most);
  cell.gain = cell.agreedNow - cell.agreedThen;
  if (cell.now > cell.then) count(cell, rows.slice(cell.then, cell.now));
}

/**
 * @param {WhatIfCell} cell
 * @param {ProposalRow[]} rows
 */
function count(cell, rows) {
  for (const row of rows) {
    if (row.verdict === "same") cell.same += 1;
    else if (row.verdict === "other") cell.other += 1;
    else cell.unknown += 1;
  }
}

/**
 * @param {WhatIfCell} cell
 * @param {Token[]} tokens
 */
function check(cell, tokens) {
  const checked = tokens.filter((token) => token.check);
  cell.checked = checked.length;
  cell.wrong = checked.filter((token) => token.check?.id !== token.id).length;
}

/** @type {(cells: WhatIfCell[], value: (cell: WhatIfCell) => number) => number} */
const sum = (cells, value) => cells.reduce((total, cell) => total + value(cell), 0);

/**
 * Evaluates the whole run with threshold `tau`.
 * - first: index of the first step that accepts or drafts a different number of tokens, -1 if there is none
 * - exact: for the steps with an exact result, the number of passes (forwards), of tokens in the run (then) and of
 *   tokens with `tau` (now)
 * - whole: these three numbers for all steps before the text repeats itself; `now` is an estimate
 * - taken: counts of the proposals that only `tau` accepts
 * - left: counts of the tokens that only the run accepted
 * - drafts: counts of the drafts of a lossless run (draftsOf)
 * The argument `known` has the cells of an earlier call with this lane and threshold; cells that can no longer change
 * are reused.
 * @param {Lane} lane
 * @param {number} tau
 * @param {Set<number>} ends
 * @param {WhatIfCell[]} [known]
 */
export function whatIf(lane, tau, ends, known = []) {
  const cells = known.slice(0, Math.max(0, known.length - REACH));
  for (let index = cells.length; index < lane.steps.length; index += 1) cells.push(cellOf(lane, index, tau, ends));
  const first = cells.findIndex((cell) => cell.then !== cell.now);
  const num = cells.length;
  // In a lossless run, the first different step changes only the number of drafts. The next pass verifies them, so it
  // is included too.
  const exact = first < 0 ? num : Math.min(num, first + (cells[first].isLossless ? 2 : 1));
  /** @type {(upTo: number, steps?: Step[]) => { forwards: number, then: number, now: number }} */
  const span = (upTo, steps = lane.steps) => {
    const last = steps[upTo - 1];
    const tokens = last ? last.first + last.count : 0;
    return { forwards: upTo, then: tokens, now: tokens + sum(cells.slice(0, upTo), (cell) => cell.gain) };
  };
  const exactly = span(exact);
  if (first >= 0 && exact > first + 1) exactly.now = exactly.then + cells[first].gain;
  const totals = { taken: takenMore(cells), left: takenLess(cells), drafts: draftsOf(cells) };
  const { steps } = upToLoop(lane);
  return { cells, first, exact: exactly, whole: span(steps.length, steps), ...totals };
}

/** @param {WhatIfCell[]} cells */
function takenMore(cells) {
  const [same, other, unknown] = [sum(cells, (c) => c.same), sum(cells, (c) => c.other), sum(cells, (c) => c.unknown)];
  const forwards = cells.filter((cell) => cell.now > cell.then).length;
  return { forwards, num: same + other + unknown, same, other, unknown };
}

/** @param {WhatIfCell[]} cells */
function takenLess(cells) {
  const fewer = cells.filter((cell) => cell.now < cell.then);
  return {
    forwards: fewer.length,
    num: sum(fewer, (cell) => cell.then - cell.now),
    checked: sum(fewer, (cell) => cell.checked),
    wrong: sum(fewer, (cell) => cell.wrong),
  };
}

/**
 * Returns the number of drafts of a lossless run and how many of them AR agreed with, in the run (then) and with the
 * other threshold (now); null if no step is lossless.
 * @param {WhatIfCell[]} cells
 */
function draftsOf(cells) {
  if (!cells.some((cell) => cell.isLossless)) return null;
  return {
    then: sum(cells, (cell) => (cell.isLossless ? cell.then : 0)),
    now: sum(cells, (cell) => (cell.isLossless ? cell.now : 0)),
    agreedThen: sum(cells, (cell) => cell.agreedThen),
    agreedNow: sum(cells, (cell) => cell.agreedNow),
  };
}

/**
 * Returns the tokens of a lane grouped as passes with threshold `tau` would emit them; every token is in one group.
 * isGuess: whether the group is an estimate, as after the first difference. isFirst: whether the group has the first
 * difference from the run, which ends the exact part.
 * @param {Lane} lane
 * @param {WhatIf} result
 * @param {number} tau
 */
export function regrouped(lane, result, tau) {
  /** @type {LensGroup[]} */
  const groups = [];
  let place = 0;
  for (const step of lane.steps) {
    const end = step.first + step.count;
    while (place < end) {
      const count = Math.min(reach(lane, step, place - step.first, result.cells, tau), lane.tokens.length - place);
      const isExact = result.first < 0 || step.index < result.exact.forwards;
      const isFirst = result.first >= 0 && step.index === result.exact.forwards - 1 && place === step.first;
      groups.push({ first: place, count, isGuess: !isExact || (place > step.first && result.first >= 0), isFirst });
      place += count;
    }
  }
  return groups;
}

/**
 * Returns how many tokens, at least one, a step would have accepted if it had begun at index `from` of its tokens.
 * Stops at the first proposal that differs from the text that the run wrote.
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
 * For a pass of a lossless run that begins at index `from` of the step's tokens, returns how many drafts AR would have
 * confirmed with threshold `tau`, plus one for AR's own token.
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
