// Pins lanes of Live: a pinned lane becomes an answer of the set "Pinned runs", which the Review tab opens.

import { attribute, button, put } from "../../core/dom.js";
import { Store } from "../../core/records.js";
import { openView } from "../../core/tabs.js";
import { pinLane } from "./sets.js";

export const PINNED = "pinned";
const FULL = "The set of pinned runs has too many methods. Export it and delete it in Review.";

/** @type {Store<ReviewSet> | null} */
let pageStore = null;

// The sets of this browser.
export const sets = () => (pageStore ||= new Store());

/** @returns {ReviewSet} */
const empty = () => ({ id: PINNED, header: { id: PINNED, name: "Pinned runs", methods: [], made: {} }, items: [] });

/**
 * Adds a lane to the set of pinned runs. Returns "" or a sentence about why it is not stored.
 * @param {Lane} lane
 */
async function pin(lane) {
  if (!lane.steps.length) return "";
  const all = await sets().all();
  const set = all.find(({ id }) => id === PINNED) ?? empty();
  if (!pinLane(set, lane)) return FULL;
  const sentence = await sets().put(set);
  document.dispatchEvent(new CustomEvent("mars-pinned", { detail: set }));
  return sentence;
}

/**
 * Returns the button that pins a lane in its current state. A second press opens Review.
 * @param {View} view
 * @param {Lane} lane
 */
export function pinButton(view, lane) {
  const attributes = {
    class: "rv-pin",
    title: "Add this run to the pinned runs in Review",
    "aria-label": `Pin ${lane.title}`,
  };
  let isPinned = false;
  const node = button(attributes, "Pin", () => {
    if (isPinned) return openView("review");
    isPinned = true;
    return view.ask("pin", { lane, report });
  });
  /** @param {string} sentence */
  const report = (sentence) => {
    put(node, sentence ? "Pinned for now" : "Pinned");
    attribute(node, { class: "rv-pin rv-pinned", title: sentence || "Open the pinned runs in Review", "aria-label": `${lane.title} is pinned. ${sentence}`.trim() }); // prettier-ignore
  };
  return node;
}

export function mountPins() {
  document.addEventListener("mars-ask", ({ detail }) => {
    if (detail.kind === "pin") pin(detail.lane).then(detail.report);
  });
}
