// The runs that are compared while nothing is pinned: one recorded prompt with three methods.

import { runColours } from "../../core/colours.js";
import { recording } from "../../explain/explain.js";
import { Pin } from "./tray.js";

/** @type {[recording: string, lane: string, title: string][]} */
const SHOWN = [
  ["dial-lossless", "ar", "Plain AR"],
  ["dial-lossless", "mars", "MARS, lossless"],
  ["dial-70", "mars", "MARS, τ 0.7, unverified"],
];

/** @type {Pin[] | null} */
let made = null;

// The recorded runs as pins that are in no tray; none if the recordings did not come with the page.
export const samples = () => (made ??= SHOWN.flatMap(([name, lane, title], i) => sampleOf(name, lane, title, i + 1)));

// Describes when and on what they were recorded, and their prompt; "" if there are none.
export function samplesText() {
  const { note, prompt } = recording(SHOWN[0][0]) ?? {};
  return note ? `Recorded ${note}: “${prompt}”` : "";
}

/**
 * @param {string} name
 * @param {string} lane
 * @param {string} title
 * @param {number} number
 */
function sampleOf(name, lane, title, number) {
  const lines = recording(name)?.lanes.find((each) => each.name === lane)?.lines;
  if (!lines) return [];
  const words = { name: title, note: "", rating: 0, verdict: null };
  const pin = new Pin({ id: `recorded-${number}`, pinned: 0, ...words, isImported: false, number, lines });
  pin.record.colour = runColours.placeFor(pin);
  runColours.kept.set(pin.identity, pin.record.colour);
  return [pin];
}
