// Loads the recorded runs that "How it works" and the presentation show. They come as one script, so they need no server
// afterwards. A separate document contains them.

import { make } from "./dom.js";
import { Lane } from "./trace.js";
import { readValue } from "./wire.js";

/** @type {Promise<void> | null} */
let loading = null; // null on a page that contains its recordings

/**
 * Loads the recordings with low priority, after everything that the page needs to appear. Called at the end of the
 * page's script.
 * @param {string} address
 */
export function mountRecordings(address) {
  const script = make("script", { src: address, fetchpriority: "low" });
  loading = new Promise((resolve) => {
    script.onload = () => resolve();
    script.onerror = () => resolve();
  });
  document.head.append(script);
}

const element = () => document.getElementById("mars-recorded");

/** Calls `act` when the recordings have been loaded or cannot be loaded. @param {() => void} act */
export function whenRecorded(act) {
  if (!loading || element()) act();
  else void loading.then(act);
}

/** @type {Record<string, string> | null} */
let values = null;

/** @param {string} name */
function recordedValue(name) {
  const text = element()?.textContent;
  values ??= text ? JSON.parse(text) : null;
  return values?.[name] ?? "";
}

/** @param {string} name @returns {Recording | null} */
export function recording(name) {
  const value = recordedValue(name);
  if (!value) return null;
  const { head, lines } = readValue(value);
  const lanes = head.lanes.map((/** @type {LaneHead} */ { lane, title }) => {
    const own = lines.flatMap(([tag, text]) => (tag === lane ? [text] : []));
    return Lane.of(own, { lane, title });
  });
  for (const [tag, text] of lines) {
    if (tag !== "verdict") continue;
    const { lane, right } = JSON.parse(text);
    for (const found of lanes) if (found.name === lane) found.verdict = right;
  }
  return { note: String(head.recorded || ""), prompt: lanes[0].header?.prompt ?? "", lanes };
}
