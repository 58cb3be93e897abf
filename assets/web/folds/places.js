// Lists the places where a pass proposed a token that AR would not have chosen, and the first difference between the
// texts of two lanes. Pure; no DOM.

import { divergence, draftIds } from "../core/folds.js";
import { factsOf } from "../core/methods.js";
import { isLossless } from "./proposals.js";

/**
 * Returns the places of a lane in the order of the text: - wrong: an accepted token that AR would not have chosen after
 * the same text (the next pass reports AR's choice) - corrected: a rejected draft, in place of which AR's own token was
 * emitted - differs: the first token that differs from the text of `ar`, if it is neither of these isFirst: whether the
 * texts of the lane and of `ar` first differ here. Guesses of Jacobi decoding are no places, because nearly every pass
 * replaces some of them.
 * @param {Lane} lane @param {Lane | null} [ar]
 */
export function placesOf(lane, ar = null) {
  const first = ar ? divergence(lane, ar, 0) : -1;
  return lane.tokens.flatMap((token, index) => {
    const isFirst = index === first;
    const found = wrongAt(token) ?? correctedAt(lane, token) ?? (ar && isFirst && differsAt(token, ar.tokens[index]));
    return found ? [{ token: index, step: token.step.index, isFirst, ...found }] : [];
  });
}

/** @param {Token} token */
function wrongAt({ id, check }) {
  return check && check.id !== id ? { kind: "wrong", mine: id, ar: check.id, p: check.p } : null;
}

/** @param {Lane} lane @param {Token} token */
function correctedAt(lane, { id, step, position, confidence }) {
  const isOwn = step.stop === "mismatch" && position === step.count - 1;
  if (!isOwn || !isLossless(step) || factsOf(step.settings).isGuessing) return null;
  const draft = draftIds(lane.steps[step.index - 1])[position];
  return draft === undefined ? null : { kind: "corrected", mine: draft, ar: id, p: confidence };
}

/** @param {Token} token @param {Token} other */
const differsAt = ({ id }, other) => ({ kind: "differs", mine: id, ar: other.id, p: other.confidence });

/**
 * Returns the index of the place at a token or, if `token` is -1, of the first place in a pass; and the indices of the
 * nearest places before and after it. An index is -1 if there is no such place.
 * @param {Place[]} places @param {Step} step @param {number} token
 */
export function placesAround(places, step, token) {
  const at = token >= 0 ? token : step.first;
  const here = places.findIndex((place) => (token >= 0 ? place.token === token : place.step === step.index));
  if (here >= 0) return { here, previous: here - 1, next: here + 1 < places.length ? here + 1 : -1 };
  return {
    here,
    previous: places.findLastIndex((place) => place.token < at),
    next: places.findIndex((place) => place.token > at),
  };
}
