// Parts of pages that work without a server: reading the page's data, and drawing the passes of a run as bars.

import { make } from "../../core/dom.js";

const MOST = 8; // tokens in a pass at which its bar has the full height

export const pageData = () => JSON.parse(document.getElementById("data")?.textContent || "{}");

/**
 * Draws one bar for each pass, as high as its number of tokens.
 * @param {number[]} counts
 */
export function bars(counts) {
  const heights = counts.map((count) =>
    make("i", { class: `rp-n${Math.min(count, 5)}`, style: `height: ${(Math.min(count, MOST) / MOST) * 100}%` }),
  );
  return make("div", { class: "rp-bars", "aria-hidden": true }, ...heights);
}
