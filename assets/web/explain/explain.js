// The tab "How it works": puts the pictures into the places that its page keeps for them.

import { find, make } from "../core/dom.js";
import { MaskView } from "./mask_view.js";
import { recording } from "./recordings.js";
import { SlotPlayer } from "./slot_view.js";
import { cacheWords, losslessWords } from "./slot_words.js";
import { slotRun } from "./slots.js";
import { TauView } from "./tau_view.js";

/** @type {Record<string, (element: HTMLElement) => unknown>} */
export const PICTURES = {
  mask: (element) => new MaskView(element),
  caches: (element) =>
    ofRecording(
      element,
      "block-cache",
      (r) =>
        new SlotPlayer(
          element,
          r.lanes.map((l) => slotRun(l.title, l.lines)),
          cacheWords,
        ),
    ),
  lossless: (element) =>
    ofRecording(
      element,
      "lossless",
      (r) => new SlotPlayer(element, [slotRun("Lossless MARS", r.lanes[0].lines)], losslessWords),
    ),
  tau: (element) =>
    ofRecording(element, "tau-moved", (r) => new TauView(element, slotRun(r.lanes[0].title, r.lanes[0].lines))),
};

/**
 * A picture of a recorded run, under what was asked and when it was recorded.
 * @param {HTMLElement} element
 * @param {string} name
 * @param {(recorded: Recording) => unknown} draw
 */
function ofRecording(element, name, draw) {
  const recorded = recording(name);
  if (!recorded) {
    element.append(make("p", "ex-said", "The recording of this picture did not come with the page."));
    return null;
  }
  const asked = make("p", "ex-asked", "Asked: ");
  asked.append(make("q", "", recorded.prompt), ` · recorded ${recorded.note}`);
  element.append(asked);
  return draw(recorded);
}

/**
 * Called by the component's js_on_load, or by a page of its own.
 * @param {HTMLElement} element
 */
export function mountExplain(element) {
  const root = find(element, ".mars-explain");
  /** @type {Record<string, unknown>} */
  const pictures = {};
  root.pictures = pictures;
  for (const place of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-picture]"))) {
    const name = place.dataset.picture || "";
    pictures[name] = PICTURES[name](place);
  }
  return root;
}
