// Short explanations of words and controls, in one table: a button and its popover. Uses the browser's popovers: Enter
// and Space open them; Escape or a press elsewhere closes them.

import { button, make, tabOf } from "./dom.js";
import { DEFINITION } from "./speedup.js";

/** @type {Record<string, { title: string, text: string, place: string }>} */
export const HELP = {
  tau: {
    title: "τ, the threshold",
    text: "The model says how sure it is of each token that it proposes. From left to right, tokens are taken as long as that is at least τ. A lower τ takes more from each pass and gets more of it wrong. With Lossless on the text stays the same: there τ says only how boldly to try.",
    place: "ex-tau",
  },
  block_size: {
    title: "B, proposals in one pass",
    text: "How many tokens the model proposes in one pass, at most. More proposals make a pass take longer; auto chooses as many as pay off here.",
    place: "ex-run",
  },
  aim: {
    title: "What auto aims at",
    text: "Least time here: auto drafts only as many tokens as pay off on this machine at this moment, so the number of passes differs from run to run. Fewest passes: auto decides by the text alone, so a prompt takes the same passes on every machine; the text may then arrive a little later.",
    place: "ex-run",
  },
  lossless: {
    title: "Lossless",
    text: "Each pass also checks what the pass before it proposed, and only what an ordinary (AR) model would have written is kept. The text is AR's, token for token.",
    place: "ex-lossless",
  },
  pace: {
    title: "Slow motion",
    text: "The model rests after each pass, so that you can watch and steer it. The clocks stand still meanwhile: no figure changes.",
    place: "ex-run",
  },
  presets: {
    title: "Presets",
    text: "Exact is lossless: the text is plain AR’s. Fast keeps proposals without verifying them, so its text may differ from plain AR’s. It is offered where it was faster than Exact on the examples here. A preset leaves all other settings as they are.",
    place: "ex-tau",
  },
  perForward: {
    title: "Tokens per forward",
    text: "A token is a word or a piece of one; a forward, or pass, is one evaluation of the whole model. An ordinary model (AR, autoregressive) writes one token in each pass, MARS as many as it can foresee.",
    place: "ex-run",
  },
  speedup: { title: "Speed over plain AR", text: DEFINITION, place: "ex-run" },
};
const WIDTH = 320;
const GAP = 6;
const EXPLAINED_IN = "How it works"; // the page's tab, if it has one
let counted = 0;

/**
 * Creates a button ⓘ and its popover, for what is next to it.
 * @param {string} name a key of HELP
 */
export function helpFor(name) {
  const { title, text, place } = HELP[name];
  counted += 1;
  const words = make("p", { id: `help-${name}-${counted}` }, text);
  const link = button("help-link", EXPLAINED_IN, () => {
    popover.hidePopover();
    go(place);
  });
  const popover = make("div", { class: "help-text", popover: "auto" }, make("b", "help-name", title), words, link);
  const opener = make("button", { class: "help-button", type: "button", "aria-label": `About: ${title}` }, "i");
  popover.addEventListener("beforetoggle", () => {
    link.hidden = !tabOf(EXPLAINED_IN);
    stand(popover, opener.getBoundingClientRect());
  });
  opener.popoverTargetElement = popover;
  return make("span", { class: "help mars-page", "data-help": name }, opener, popover);
}

/**
 * Places it below the button, or above if there is no space.
 * @param {HTMLElement} popover
 * @param {DOMRect} opener
 */
function stand({ style }, opener) {
  const isLow = opener.bottom > 0.7 * window.innerHeight;
  style.maxWidth = `${Math.min(WIDTH, window.innerWidth - 2 * GAP)}px`;
  style.left = `${Math.max(GAP, Math.min(opener.left, window.innerWidth - WIDTH - GAP))}px`;
  style.top = isLow ? "auto" : `${opener.bottom + GAP}px`;
  style.bottom = isLow ? `${window.innerHeight - opener.top + GAP}px` : "auto";
}

/** @param {string} place */
function go(place) {
  tabOf(EXPLAINED_IN)?.click();
  requestAnimationFrame(() => document.getElementById(place)?.scrollIntoView());
}
