import { factsOf, nameOf } from "../core/methods.js";
import { LIMITS } from "../core/table.js";
import { joined, short } from "../core/words.js";

/** @param {Settings} settings */
const blockText = (settings) => `B ${settings.block_size}`;

/** @param {Settings} settings */
function tauText({ tau, tau_policy: policy, agreement_target: target, lossless }) {
  if (lossless || !policy || policy === "fixed") return `τ ${short(tau)}`;
  return `${policy === "entropy" ? "τ by entropy" : `τ for ${short(target)} agreement`}, at least ${short(tau)}`;
}

/** @param {Settings | null} settings */
export function settingsText(settings) {
  if (!settings) return "";
  if (factsOf(settings).isReference) return "one token per pass";
  if (nameOf(settings) === "lookup") return "no masks";
  if (factsOf(settings).needsDraftModel) return draftText(settings);
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

/** @param {Settings | null} settings */
function penaltyText(settings) {
  const penalty = settings?.repetition_penalty ?? 1;
  return penalty === 1 ? "" : `repetition penalty ${short(penalty)}`;
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

/** @param {{ settings: Settings, before: Settings }} given */
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
