// Names of the sources of tokens (AR and the drafters). Each source is drawn with a colour and a pattern
// (core/tokens.css), so that it can be recognised without colour too. Pure; no DOM.

import { folds, passesSaved } from "./folds.js";
import { counted } from "./words.js";

/**
 * The sources of tokens. name: text in a legend. by: phrase after a number of tokens. mark: suffix of the CSS classes.
 * @type {Record<Source, { name: string, by: string, mark: string }>}
 */
export const SOURCES = {
  ar: { name: "AR's own", by: "by AR", mark: "ar" },
  masks: { name: "predicted by masks", by: "by masks", mark: "masks" },
  "look-up": { name: "copied by prompt lookup", by: "by prompt lookup", mark: "lookup" },
  "draft model": { name: "by a draft model", by: "by the draft model", mark: "draft" },
  guesses: { name: "guessed", by: "by guesses", mark: "guess" },
};

/** @type {readonly Source[]} */
const DRAFTERS = ["masks", "look-up", "draft model", "guesses"];

/**
 * Returns a text such as "38 passes saved: 26 by masks, 12 by prompt lookup"; empty before the first step.
 * @param {Lane} lane
 */
export function savedText(lane) {
  if (!lane.steps.length) return "";
  const saved = passesSaved(lane);
  const parts = DRAFTERS.filter((drafter) => saved[drafter]).map(
    (drafter) => `${saved[drafter]} ${SOURCES[drafter].by}`,
  );
  const all = folds.tokens(lane) - folds.forwards(lane);
  if (all < 0) return `${counted(-all, "more pass", "more passes")} than tokens`;
  if (parts.length < 2) return `${counted(all, "pass", "passes")} saved ${parts.join("").replace(/^\d+ /, "")}`.trim();
  return `${counted(all, "pass", "passes")} saved: ${parts.join(", ")}`;
}
