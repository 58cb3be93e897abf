// What a word or a control of the page means, in a few words where it stands: a button, and what it opens. One table.
// The browser's own popovers: Enter and Space open, Escape closes, and so does a press elsewhere. Knows no view.

import { make, tabOf } from "./dom.js";
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
    text: "Exact: Lossless, with the boldest τ; the text is that of an ordinary model. Balanced: τ 0.95, takes what the model is nearly sure of. Fast: τ 0.7, takes more from each pass, and its text differs sooner.",
    place: "ex-tau",
  },
  perForward: {
    title: "Tokens per forward",
    text: "A token is a word or a piece of one; a forward, or pass, is one evaluation of the whole model. An ordinary model (AR, autoregressive) writes one token in each pass, MARS as many as it can foresee.",
    place: "ex-run",
  },
  speedup: {
    title: "Speedup of decoding",
    text: DEFINITION,
    place: "ex-run",
  },
};
const WIDTH = 320;
const GAP = 6;
const EXPLAINED_IN = "How it works"; // the tab, where the page has it
let counted = 0;

/**
 * A button ⓘ and its popover, to stand beside what it explains.
 * @param {string} name of HELP
 */
export function helpFor(name) {
  const { title, text, place } = HELP[name];
  const element = make("span", "help mars-page");
  element.dataset.help = name;
  const button = make("button", "help-button", "i");
  button.type = "button";
  button.setAttribute("aria-label", `About: ${title}`);
  const popover = make("div", "help-text");
  popover.popover = "auto";
  const words = make("p", "", text);
  counted += 1;
  words.id = `help-${name}-${counted}`;
  const link = make("button", "help-link", EXPLAINED_IN);
  link.type = "button";
  link.addEventListener("click", () => {
    popover.hidePopover();
    go(place);
  });
  popover.append(make("b", "help-name", title), words, link);
  popover.addEventListener("beforetoggle", () => {
    link.hidden = !tabOf(EXPLAINED_IN);
    stand(popover, button.getBoundingClientRect());
  });
  button.popoverTargetElement = popover;
  element.append(button, popover);
  return element;
}

/**
 * Beneath the button, or above it where it stands low on the screen.
 * @param {HTMLElement} popover
 * @param {DOMRect} button
 */
function stand({ style }, button) {
  const isLow = button.bottom > 0.7 * window.innerHeight;
  style.maxWidth = `${Math.min(WIDTH, window.innerWidth - 2 * GAP)}px`;
  style.left = `${Math.max(GAP, Math.min(button.left, window.innerWidth - WIDTH - GAP))}px`;
  style.top = isLow ? "auto" : `${button.bottom + GAP}px`;
  style.bottom = isLow ? `${window.innerHeight - button.top + GAP}px` : "auto";
}

/** @param {string} place */
function go(place) {
  tabOf(EXPLAINED_IN)?.click();
  requestAnimationFrame(() => document.getElementById(place)?.scrollIntoView());
}
