// Help buttons: the table of their explanations, and the button with its popover. The browser handles the popover:
// Enter and Space open it; Escape or a press elsewhere closes it.

import { button, make } from "./dom.js";
import { DEFINITION } from "./speedup.js";
import { hasTab, openView } from "./tabs.js";

/** @type {Record<string, { title: string, text: string, place: string }>} */
export const HELP = {
  tau: {
    title: "τ, the threshold",
    text: "The model gives each proposed token a confidence. Tokens are accepted from left to right until one falls below τ. A lower τ accepts more tokens, and more mistakes. With the same text as AR, τ never changes the text; it only sets how sure a draft must be to be tried.",
    place: "ex-tau",
  },
  block_size: {
    title: "B, proposals per pass",
    text: "The maximum number of tokens that the model proposes in one pass. More proposals make a pass slower; auto chooses as many as pay off.",
    place: "ex-run",
  },
  lossless: {
    title: "Same text as AR",
    text: "Each pass also verifies the tokens drafted by the pass before. Only tokens that ordinary decoding (AR) would have chosen are kept, so the text is AR's, token for token.",
    place: "ex-lossless",
  },
  perForward: {
    title: "Tokens per pass",
    text: "A token is a word or a part of one. A pass (forward pass) is one evaluation of the whole model. An ordinary model (AR, autoregressive) writes one token per pass; MARS writes as many as it can predict.",
    place: "ex-run",
  },
  speedup: { title: "Speed over plain AR", text: DEFINITION, place: "ex-run" },
};
const WIDTH = 320;
const GAP = 6;
const EXPLAINED_IN = "how-it-works"; // the tab that the link opens, if the page has tabs
let numCreated = 0; // makes the ids of the popovers' texts unique

/** @param {string} name a key of HELP */
export function helpFor(name) {
  const { title, text, place } = HELP[name];
  numCreated += 1;
  const words = make("p", { id: `help-${name}-${numCreated}` }, text);
  const link = button("help-link", "How it works", () => {
    popover.hidePopover();
    go(place);
  });
  const popover = make("div", { class: "help-text", popover: "auto" }, make("b", "help-name", title), words, link);
  const opener = make("button", { class: "help-button", type: "button", "aria-label": `About: ${title}` }, "i");
  popover.addEventListener("beforetoggle", () => {
    link.hidden = !hasTab(EXPLAINED_IN);
    position(popover, opener.getBoundingClientRect());
  });
  opener.popoverTargetElement = popover;
  return make("span", { class: "help mars-page", "data-help": name }, opener, popover);
}

/**
 * Positions a popover below its button, or above the button if there is no space below.
 * @param {HTMLElement} popover
 * @param {DOMRect} opener
 */
function position({ style }, opener) {
  const isLow = opener.bottom > 0.7 * window.innerHeight;
  style.maxWidth = `${Math.min(WIDTH, window.innerWidth - 2 * GAP)}px`;
  style.left = `${Math.max(GAP, Math.min(opener.left, window.innerWidth - WIDTH - GAP))}px`;
  style.top = isLow ? "auto" : `${opener.bottom + GAP}px`;
  style.bottom = isLow ? `${window.innerHeight - opener.top + GAP}px` : "auto";
}

/** @param {string} place */
function go(place) {
  openView(EXPLAINED_IN);
  requestAnimationFrame(() => document.getElementById(place)?.scrollIntoView());
}
