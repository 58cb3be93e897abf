// The recorded runs that the Compare view shows while nothing is pinned: one prompt with three methods.

import { runColours } from "../../core/colours.js";
import { recording } from "../../core/recordings.js";
import { Pin } from "./tray.js";

/** @type {[recording: string, lane: string, title: string][]} */
const SHOWN = [
  ["average", "ar", "Plain AR"],
  ["average", "mars", "MARS, lossless"],
  ["average", "lookup", "AR + lookup"],
];

/** @type {Pin[] | null} */
let pins = null;

// Returns the recorded runs as pins, which are not in the tray; [] if the page does not contain the recordings.
export const samples = () => (pins ??= SHOWN.flatMap(([name, lane, title], i) => sampleOf(name, lane, title, i + 1)));

// Describes when and on which machine the runs were recorded, and their prompt; "" if there are no recordings.
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
  const lines = recording(name)?.lanes.find((recorded) => recorded.name === lane)?.lines;
  if (!lines) return [];
  const words = { name: title, note: "", rating: 0, verdict: null };
  const pin = new Pin({ id: `recorded-${number}`, pinned: 0, ...words, isImported: false, number, lines });
  pin.record.colour = runColours.placeFor(pin);
  runColours.kept.set(pin.identity, pin.record.colour);
  return [pin];
}
