// Parts of documents without a server: their data, and the bars of a run.

import { make } from "../../core/dom.js";

const MOST = 8; // tokens per forward at a bar's full height

// The document's data as JSON.
export const pageData = () => JSON.parse(document.getElementById("data")?.textContent || "{}");

/**
 * Draws the tokens of each forward, one bar per forward.
 * @param {number[]} counts
 */
export function bars(counts) {
  const heights = counts.map((count) =>
    make("i", { class: `rp-n${Math.min(count, 5)}`, style: `height: ${(Math.min(count, MOST) / MOST) * 100}%` }),
  );
  return make("div", { class: "rp-bars", "aria-hidden": true }, ...heights);
}
