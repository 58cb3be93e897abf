// What the lens says: what is exact, where the first difference is, what is an estimate. Text only.

import { short, whole } from "../../core/words.js";
import { proposalRows } from "../folds/why.js";
import { cellText } from "../whatif/whatif_words.js";

const DRAFTS = " Lossless: τ changes no token of the text, only how many are drafted for the next forward to check.";

/**
 * @param {Lane} lane
 * @param {WhatIf} found
 * @param {number} tau
 * @param {Set<number>} ends
 */
export function lensWords(lane, { first, exact, drafts, cells }, tau, ends) {
  const seen = `Seen with τ\u00a0=\u00a0${short(tau)}.${drafts ? DRAFTS : ""}`;
  if (first < 0) return `${seen} Every group is as it was written: exact.`;
  const cell = cells[first];
  const rows = proposalRows(lane, first, ends).slice(cell.isLossless ? lane.steps[first].count : 0);
  const rest = drafts ? "later forwards would have begun elsewhere" : "the text itself might have gone on otherwise";
  return (
    `${seen} Exact up to forward ${whole(exact.forwards)}, at the orange line: ${lowered(cellText(lane, cell, rows, tau))} ` +
    `Hatched behind it: an estimate, for ${rest}.`
  );
}

/** @param {string} sentence */
const lowered = (sentence) => sentence[0].toLowerCase() + sentence.slice(1);
