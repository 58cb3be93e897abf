// What the panel "Another τ" says: of the whole run and of one forward. Text only; numbers come from the fold.

import { counted, figure, short, whole } from "../../core/words.js";

/**
 * @param {{ forwards: number }} given
 * @param {number} tokens
 */
const perForward = ({ forwards }, tokens) => (forwards ? figure(tokens / forwards) : "–");

/**
 * [what, as run, with the other τ] rows of the table.
 * @param {WhatIf} found
 */
export function tableRows(found) {
  const { first, exact, whole: all, drafts } = found;
  if (first < 0)
    return [[`TPF, ${counted(all.forwards, "forward")}, exact`, perForward(all, all.then), perForward(all, all.now)]];
  const span = exact.forwards === 1 ? "forward 1" : `forwards 1 to ${whole(exact.forwards)}`;
  const rows = [
    [`TPF, ${span}: exact`, perForward(exact, exact.then), perForward(exact, exact.now)],
    [
      `TPF, ${all.forwards === 1 ? "the one forward" : `all ${whole(all.forwards)} forwards`}: estimate`,
      perForward(all, all.then),
      `≈ ${perForward(all, all.now)}`,
    ],
  ];
  if (drafts) {
    rows.push([
      "drafts that AR agreed with: estimate",
      `${whole(drafts.agreedThen)} of ${whole(drafts.then)}`,
      `≈ ${whole(drafts.agreedNow)} of ${whole(drafts.now)}`,
    ]);
  }
  return rows;
}

/**
 * Where the first difference is, and what may be believed from there on.
 * @param {WhatIf} found
 * @param {number} tau
 */
export function divergenceText(found, tau) {
  const { first, cells } = found;
  if (!cells.length) return "No forward is there yet.";
  const named = `τ\u00a0=\u00a0${short(tau)}`;
  const same = found.drafts ? "drafted the same" : "taken the same tokens";
  if (first < 0) return `With ${named} every forward would have ${same}: the run would be this one, exactly.`;
  const cell = cells[first];
  const [did, would] = cell.isLossless ? ["drafted", "have drafted"] : ["took", "have taken"];
  const difference = `Forward ${whole(first + 1)} is the first that differs: it ${did} ${cell.then} and would ${would} ${cell.now}.`;
  const rest = cell.isLossless
    ? "the forwards behind it would have begun at other places"
    : "what follows was predicted from another text";
  return `${difference} Up to there this is exact; ${rest}, so every later forward is judged by itself: an estimate.`;
}

/** @param {WhatIf} found */
export function losslessText(found) {
  if (!found.drafts) return "";
  return "In a lossless run τ changes no token of the text; it says how boldly to draft. The cells count drafts.";
}

/**
 * What would have been taken besides, and whether the run wrote it anyway.
 * @param {WhatIf} given
 */
export function takenText({ taken, drafts }) {
  if (!taken.num) return "";
  const what = drafts ? "proposals that were not drafted would have been" : "refused tokens would have been taken";
  const other = taken.other ? ` and something else in the place of ${whole(taken.other)}` : "";
  const unknown = taken.unknown
    ? `; ${whole(taken.unknown)} cannot be judged, for the text before them became another`
    : "";
  return `More at ${counted(taken.forwards, "forward")}: ${whole(taken.num)} ${what}; the run wrote ${whole(taken.same)} of them anyway${other}${unknown}.`;
}

/** @param {WhatIf} given */
export function leftText({ left, drafts }) {
  if (!left.num) return "";
  const what = drafts ? "drafts would not have been made" : "tokens that were taken would have been refused";
  const unknown = drafts ? "" : "; what AR would have chosen there is not known";
  const wrong = left.checked
    ? `; AR would have chosen otherwise at ${whole(left.wrong)} of the ${whole(left.checked)} that can be compared`
    : unknown;
  return `Fewer at ${counted(left.forwards, "forward")}: ${whole(left.num)} ${what}${wrong}.`;
}

/**
 * One forward: what it took, what it would take, and what the run wrote in the place of the difference.
 * @param {Lane} lane
 * @param {WhatIfCell} cell
 * @param {ProposalRow[]} rows
 * @param {number} tau
 */
export function cellText(lane, cell, rows, tau) {
  const [did, would] = cell.isLossless ? ["drafted", "would draft"] : ["took", "would take"];
  const begin = `Forward ${whole(cell.index + 1)} ${did} ${cell.then}`;
  if (cell.now === cell.then) return `${begin}; τ ${short(tau)} ${would} as many.`;
  if (cell.now < cell.then) {
    const lost = rows
      .slice(cell.now, cell.then)
      .map((row) => `“${lane.tokenName(row.id)}”`)
      .join(" ");
    return `${begin}; τ ${short(tau)} ${would} ${cell.now}, without ${lost}.`;
  }
  const more = rows
    .slice(cell.then, cell.now)
    .map((row) => `“${lane.tokenName(row.id)}” ${outcome(lane, row)}`)
    .join(", ");
  return `${begin}; τ ${short(tau)} ${would} ${cell.now}, also ${more}.`;
}

/**
 * @param {Lane} lane
 * @param {ProposalRow} row
 */
function outcome(lane, row) {
  if (row.verdict === "same") return "(the run wrote it too)";
  if (row.verdict === "other" && row.token) return `(the run wrote “${lane.tokenName(row.token.id)}”)`;
  return row.verdict === "unwritten" ? "(nothing stands there)" : "(cannot be judged)";
}
