import { acceptedDrafts, draftIds, takerOf } from "../core/folds.js";
import { factsOf, isVerified } from "../core/methods.js";
import { SOURCES } from "../core/sources.js";
import { counted, probability, short } from "../core/words.js";
import { numChecked } from "../folds/proposals.js";

const ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"];
/** @param {number} i */
const ordinal = (i) => ORDINALS[i] || `${i + 1}th`;

/** @param {Lane} lane @param {Step} step */
export function whyText(lane, step) {
  const next = step.proposals[step.count];
  const waiting = draftIds(step).length;
  const copied = step.lookedUp.length ? ", copied from earlier text" : "";
  const isDraftModel = step.guessed.length > 0 && factsOf(step.settings).needsDraftModel;
  const modelText = isDraftModel ? `, ${step.guessed.length} of them from the draft model` : "";
  const drafts = waiting
    ? ` ${counted(waiting, "draft")} ${waiting === 1 ? "waits" : "wait"} for the next pass to verify${copied}${modelText}.`
    : "";
  if (step.taken) return fillText(step, step.taken.length);
  if (step.stop === "eos") return "The text ended here.";
  if (step.stop === "limit") return "The token limit was reached.";
  if (step.stop === "repeats") return "The text started to loop, so it was stopped here.";
  if (step.settings && factsOf(step.settings).isReference) return "Plain AR writes one token per pass.";
  if (step.settings && factsOf(step.settings).isGuessing) return guessText(step);
  if (step.stop === "mismatch")
    return `AR chose another token than the draft, so the ${ordinal(step.count - 1)} token is AR's own.${drafts}`;
  if (isVerified(step.settings)) return `${agreedText(numChecked(lane, step.index))}${drafts}`;
  if (step.stop === "threshold" && next) {
    return `Stopped: the next proposal, “${lane.tokenName(next[0])}” at ${probability(next[1])}, was below τ\u00a0=\u00a0${short(step.tau)}.`;
  }
  if (step.stop === "block")
    return step.count === 1 ? "Only one proposal was requested." : `All ${step.count} proposals were accepted.`;
  return `Stopped: ${step.stop}.`;
}

/** @param {number} num number of drafts that a pass verified, all of which AR agreed with */
function agreedText(num) {
  if (!num) return "No draft to verify: the token is AR's own.";
  return num === 1 ? "AR agreed with the draft." : `AR agreed with all ${num} drafts.`;
}

/** Describes what became of the guesses that a pass of Jacobi decoding verified. @param {Step} step */
function guessText(step) {
  const num = step.proposals.length - 1;
  const confirmed = acceptedDrafts(step);
  if (!num) return "No guesses were made before this pass: its token is AR's own.";
  return `${confirmed} of ${num} ${num === 1 ? "guess" : "guesses"} were confirmed; the last token is AR's own. The predictions after it are the next guesses.`;
}

/**
 * Describes how many positions a pass of block diffusion filled, and how many tokens it emitted: those with no open
 * position before them.
 * @param {Step} step @param {number} filled
 */
function fillText(step, filled) {
  const over = { eos: " The text ended here.", limit: " The token limit was reached." }[step.stop] ?? "";
  const emitted = step.count
    ? `${counted(step.count, "token")} emitted, because all earlier positions are filled`
    : "none emitted yet, because an earlier position is not filled";
  return `Filled ${counted(filled, "position")} of the block, the most confident first; ${emitted}.${over}`;
}

/**
 * Describes who proposed a token and when; empty for plain AR, which has no drafts.
 * @param {Lane} lane @param {Token} token
 */
export function sourceText(lane, token) {
  const { step, position } = token;
  if (factsOf(step.settings).isReference) return "";
  if (step.taken) {
    const taker = takerOf(lane, token);
    return taker === step ? "" : `filled by pass ${taker.index + 1}, before the text to its left`;
  }
  const source = step.sources[position];
  if (source === "ar") return SOURCES.ar.name;
  if (source === "guesses")
    return position < lane.steps[step.index - 1].drafted
      ? `a guess of pass ${step.index}`
      : "the previous token, repeated";
  return isVerified(step.settings) ? `${SOURCES[source].name}, pass ${step.index}` : SOURCES[source].name;
}
