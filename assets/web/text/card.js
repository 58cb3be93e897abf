// The card of a token or a pass: the proposals with their confidences, and why the pass accepted no further ones. Also
// describes the settings of lanes.

import { button, make } from "../core/dom.js";
import { draftIds, takerOf } from "../core/folds.js";
import { factsOf, isVerified, nameOf } from "../core/methods.js";
import { SOURCES } from "../core/sources.js";
import { LIMITS } from "../core/table.js";
import { counted, joined, milliseconds, probability, short } from "../core/words.js";

const ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"];
/** @param {number} i */
const ordinal = (i) => ORDINALS[i] || `${i + 1}th`;

/** @param {Settings} settings */
const blockText = (settings) => `B ${settings.block_size}`;

/**
 * Describes the threshold and, if it adapts, the rule by which it adapts.
 * @param {Settings} settings
 */
function tauText({ tau, tau_policy: policy, agreement_target: target, lossless }) {
  if (lossless || !policy || policy === "fixed") return `τ ${short(tau)}`;
  return `${policy === "entropy" ? "τ by entropy" : `τ for ${short(target)} agreement`}, at least ${short(tau)}`;
}

/** @param {Settings | null} settings */
export function settingsText(settings) {
  if (!settings) return "";
  if (settings.method === "ar") return "one token per pass";
  if (nameOf(settings) === "lookup") return "no masks";
  if (settings.method === "speculative") return draftText(settings);
  if (!factsOf(settings).obeys.includes("tau")) return blockText(settings);
  const parts = [tauText(settings), blockText(settings)];
  if (settings.metric && settings.metric !== "probability") parts.push(settings.metric);
  if (settings.lossless) parts.push("lossless");
  // With automatic B, the engine also chooses which drafts get masks.
  const hasAll = settings.mask_layout === "every" && settings.block_size !== "auto";
  if (settings.lossless && hasAll) parts.push("masks after every draft");
  if (settings.lossless && settings.lookup) parts.push("prompt lookup");
  return parts.join(" · ");
}

/** @param {Lane} lane */
export const laneText = ({ settings }) => joined(settingsText(settings), penaltyText(settings));

/**
 * Describes the repetition penalty; empty if there is none, as in traces of versions without this setting.
 * @param {Settings | null} settings
 */
export function penaltyText(settings) {
  const penalty = settings?.repetition_penalty ?? 1;
  return penalty === 1 ? "" : `repetition penalty ${short(penalty)}`;
}

/**
 * Describes how a lane decodes, without abbreviations; empty for plain AR.
 * @param {Settings | null} settings
 */
export function laneWords(settings) {
  if (settings?.method === "ar") return "";
  if (settings?.method !== "mars") return settingsText(settings);
  if (nameOf(settings) === "lookup") return "verified drafts by prompt lookup, no masks";
  const most = settings.block_size === "auto" ? "" : `, up to ${counted(settings.block_size, "proposal")} per pass`;
  if (settings.lossless) return `lossless${settings.lookup ? ", with prompt lookup" : ""}${most}`;
  const isPlain = settings.tau_policy === "fixed" && settings.metric === "probability";
  if (!isPlain) return `unverified, ${tauText(settings)}, confidence measured by ${settings.metric}${most}`;
  const rule =
    settings.tau > 0
      ? `accepts tokens with at least ${short(100 * settings.tau)} % confidence`
      : "accepts every proposal";
  return `unverified, ${rule}${most}`;
}

/**
 * Describes how many tokens a draft model drafts, and which of the two models gets masks.
 * @param {Settings} settings
 */
function draftText({ draft, masked, block_size, tau }) {
  const parts = [`${Math.min(Number(block_size), LIMITS.drafts)} drafts by ${draft || "the default draft model"}`];
  if (masked !== "none")
    parts.push(`masks in ${masked === "both" ? "both models (if trained)" : `the ${masked} model`}`, `τ ${short(tau)}`);
  return parts.join(" · ");
}

/**
 * Describes which settings a move changed, in a few words that fit in a text's margin.
 * @param {{ settings: Settings, before: Settings }} given
 */
export function moveText({ settings, before }) {
  const parts = [];
  if (settings.tau !== before.tau) parts.push(`τ ${short(settings.tau)}`);
  if (settings.tau_policy !== before.tau_policy || settings.agreement_target !== before.agreement_target)
    parts.push(tauText(settings));
  if (settings.block_size !== before.block_size) parts.push(`B ${settings.block_size}`);
  if (settings.lossless !== before.lossless) parts.push(settings.lossless ? "lossless" : "unverified");
  if (settings.mask_layout !== before.mask_layout)
    parts.push(settings.mask_layout === "every" ? "every draft" : "last draft");
  if (settings.lookup !== before.lookup) parts.push(settings.lookup ? "lookup" : "no lookup");
  if (settings.metric !== before.metric) parts.push(settings.metric);
  if (settings.method !== before.method) parts.push(factsOf(settings).title);
  return parts.join(" ") || "settings restored";
}

/**
 * @param {Lane} lane
 * @param {Step} step
 */
export function whyText(lane, step) {
  const next = step.proposals[step.count];
  const waiting = draftIds(step).length;
  const copied = step.lookedUp.length ? ", copied from earlier text" : "";
  const isDraftModel = step.guessed.length > 0 && step.settings.method === "speculative";
  const modelText = isDraftModel ? `, ${step.guessed.length} of them from the draft model` : "";
  const drafts = waiting
    ? ` ${waiting} more ${waiting === 1 ? "draft waits" : "drafts wait"} to be verified${copied}${modelText}.`
    : "";
  if (step.taken) return fillText(step, step.taken.length);
  if (step.stop === "eos") return "The text ended here.";
  if (step.stop === "limit") return "The token limit was reached.";
  if (step.stop === "repeats") return "The text started to loop, so it was stopped here.";
  if (step.settings && step.settings.method === "ar") return "Plain AR writes one token per pass.";
  if (step.settings && step.settings.method === "jacobi") return guessText(step);
  if (step.stop === "mismatch")
    return `AR chose another token than the draft, so the ${ordinal(step.count - 1)} token is AR's own.${drafts}`;
  if (isVerified(step.settings)) return `AR agreed with every draft that was verified.${drafts}`;
  if (step.stop === "threshold" && next) {
    return `Stopped: the next proposal, “${lane.tokenName(next[0])}” at ${probability(next[1])}, was below τ\u00a0=\u00a0${short(step.tau)}.`;
  }
  if (step.stop === "block")
    return step.count === 1 ? "Only one proposal was requested." : `All ${step.count} proposals were accepted.`;
  return `Stopped: ${step.stop}.`;
}

/**
 * Describes what became of the guesses that a pass of Jacobi decoding verified.
 * @param {Step} step
 */
function guessText(step) {
  const num = step.proposals.length - 1;
  const confirmed = Math.min(step.count - 1, num);
  if (!num) return "No guesses were made before this pass: its token is AR's own.";
  return `${confirmed} of ${num} ${num === 1 ? "guess" : "guesses"} were confirmed; the last token is AR's own. The predictions after it are the next guesses.`;
}

/**
 * Describes how many positions a pass of block diffusion filled, and how many tokens it emitted: those with no open
 * position before them.
 * @param {Step} step
 * @param {number} filled
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
 * @param {Lane} lane
 * @param {Token} token
 */
export function sourceText(lane, token) {
  const { step, position } = token;
  if (step.settings.method === "ar") return "";
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

/**
 * Draws a proposal and its runners-up with their probabilities as bars. others: the runners-up from which a branch can
 * start, which become buttons.
 * @param {Lane} lane
 * @param {Proposal} proposal
 * @param {Others | null} others
 */
function probs(lane, proposal, others) {
  const [token, confidence, runnersUp] = proposal;
  /** @type {[id: number, p: number][]} */
  const rows = [[token, confidence], ...(runnersUp || []).slice(0, 4)];
  /** @type {(id: number, p: number, isOther: boolean) => HTMLElement} */
  const name = (id, p, isOther) => {
    const code = make("code", "", lane.tokenName(id));
    if (!isOther || !others?.can(id)) return code;
    const label = `Continue with “${lane.tokenName(id)}” instead, ${probability(p)}`;
    return button({ class: "rv-other", title: label, "aria-label": label }, [code], () => others.go(id));
  };
  const cells = rows.flatMap(([id, p], i) => [
    name(id, p, i > 0),
    make("span", i ? "rv-bar" : "rv-bar rv-best", make("i", { style: `width: ${Math.max(0, Math.min(1, p)) * 100}%` })),
    make("span", "", probability(p)),
  ]);
  return make("div", "rv-probs", ...cells);
}

/** @type {(name: string, where: string) => HTMLElement} */
const titleOf = (name, where) => make("div", "rv-title", make("b", "", name), make("span", "rv-where rv-num", where));

export class Card {
  /**
   * @param {HTMLElement} element
   * @param {HTMLElement} root
   */
  constructor(element, root) {
    this.element = element;
    this.root = root;
  }

  /**
   * @param {Lane} lane
   * @param {number} index
   * @param {Anchor} anchor
   * @param {Others | null} [others]
   * @param {string} [hint] what pressing the token does
   */
  token(lane, index, anchor, others = null, hint = "") {
    const token = lane.tokens[index];
    const { step } = token;
    const name = lane.tokenName(token.id);
    const rank = step.count === 1 ? "its only token" : `${ordinal(token.position)} of ${step.count}`;
    const proposal = step.proposals[token.position];
    this.show(
      anchor,
      titleOf(token.isEnd ? `end token ${name}` : name, `token ${index + 1}`),
      make("div", "rv-where rv-num", `pass ${step.index + 1} · ${rank}`),
      ...(proposal ? [probs(lane, proposal, others)] : []),
      this.facts(step, token.confidence, sourceText(lane, token)),
      make("div", "rv-why", whyText(lane, step)),
      ...(hint ? [make("div", "rv-hint", hint)] : []),
    );
  }

  /**
   * @param {Lane} lane
   * @param {number} index
   * @param {Anchor} anchor
   */
  step(lane, index, anchor) {
    const step = lane.steps[index];
    const text = lane.namesOf(step.first, step.first + step.count);
    this.show(
      anchor,
      titleOf(text, `pass ${index + 1}`),
      make("div", "rv-where rv-num", `${counted(step.count, "token")} of ${step.proposals.length} proposed`),
      this.facts(step),
      make("div", "rv-why", whyText(lane, step)),
    );
  }

  /**
   * @param {Step} step
   * @param {number | null} [confidence]
   * @param {string} [source]
   */
  facts(step, confidence = null, source = "") {
    const metric = (step.settings || {}).metric || "probability";
    const rows = [
      ["settings", settingsText(step.settings)],
      ["took", `${milliseconds(step.seconds)} ms`],
    ];
    if (step.draftForwards)
      rows.push(["including", `${counted(step.draftForwards, "pass", "passes")} of the draft model`]);
    if (confidence !== null) rows.unshift(["confidence", `${probability(confidence)} (${metric})`]);
    if (source) rows.unshift([step.taken ? "order" : "from", source]);
    return make("dl", "", ...rows.flatMap(([name, value]) => [make("dt", "", name), make("dd", "", value)]));
  }

  /**
   * Shows the card below the anchor, or above it if there is no space below. The card stays inside the view
   * horizontally.
   * @param {Anchor} anchor
   * @param {HTMLElement[]} parts
   */
  show(anchor, ...parts) {
    const { element, root } = this;
    element.replaceChildren(...parts);
    element.hidden = false;
    const box = root.getBoundingClientRect();
    const at = anchor instanceof Element ? anchor.getClientRects()[0] || anchor.getBoundingClientRect() : anchor;
    const width = element.offsetWidth;
    const height = element.offsetHeight;
    const floor = window.innerHeight - (parseFloat(getComputedStyle(root).getPropertyValue("--rv-floor")) || 0); // on a phone, a bar covers the bottom
    const isAbove = at.bottom + 8 + height > floor && at.top - 8 - height > 0;
    const left = Math.max(4, Math.min(at.left - box.left - 12, box.width - width - 4));
    element.style.left = `${left}px`;
    element.style.top = `${(isAbove ? at.top - 8 - height : at.bottom + 8) - box.top}px`;
  }

  hide() {
    this.element.hidden = true;
  }
}
