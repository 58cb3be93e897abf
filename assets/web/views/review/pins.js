// Pins lanes of Live: a pinned lane becomes an answer of the set "Pinned runs", which the Review tab opens.

import { Store } from "../../core/records.js";
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

const DONE = "Pinned. Open Review to compare the pinned runs.";

/**
 * Returns the item of the Share menu that pins a lane in its current state.
 * @param {View} view
 * @param {Lane} lane
 * @returns {FileOffer}
 */
export const pinOffer = (view, lane) => ({
  text: "Pin",
  hint: "add it to the pinned runs in Review",
  make: () =>
    new Promise((resolve) => {
      view.ask("pin", { lane, report: (/** @type {string} */ fault) => resolve({ said: fault || DONE }) });
    }),
});

export function mountPins() {
  document.addEventListener("mars-ask", ({ detail }) => {
    if (detail.kind === "pin") pin(detail.lane).then(detail.report);
  });
}
