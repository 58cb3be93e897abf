// The recorded runs that came with the page (app/recordings.py): read when asked for.

import { readValue } from "../core/wire.js";

const read = new Map();
let came = null;

function shipped() {
  const element = document.getElementById("mars-recorded");
  came ||= element ? JSON.parse(element.textContent) : { runs: {} };
  return came;
}

/**
 * { prompt, note, verdicts, lanes: [{ name, title, lines }] }, or null when it did not come along.
 * @param {string} name
 * @returns {Recording | null}
 */
export function recording(name) {
  if (!read.has(name)) read.set(name, parse(shipped().runs[name]));
  return read.get(name);
}

/**
 * @param {string | undefined} value
 * @returns {Recording | null}
 */
function parse(value) {
  if (!value) return null;
  const { head, lines } = readValue(value);
  /** @type {Recording["lanes"]} */
  const lanes = head.lanes.map(({ lane, title }) => ({ name: lane, title, lines: [] }));
  /** @type {Record<string, boolean>} */
  const verdicts = {};
  for (const [tag, text] of lines) {
    const lane = lanes.find(({ name }) => name === tag);
    if (lane) lane.lines.push(text);
    else if (tag === "verdict") {
      const verdict = JSON.parse(text);
      verdicts[verdict.lane] = verdict.right;
    }
  }
  const { prompt } = JSON.parse(lanes[0].lines[0]);
  return { note: String(head.recorded || ""), prompt, verdicts, lanes };
}
