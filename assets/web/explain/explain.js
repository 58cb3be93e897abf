// The tab "How it works": draws its pictures, and loads the recordings that the pictures and the tour show.

import { find, make } from "../core/dom.js";
import { Lane } from "../core/trace.js";
import { readValue } from "../core/wire.js";
import { PassesView } from "./passes.js";
import { TauView } from "./tau.js";

/** @type {Record<string, (element: HTMLElement) => unknown>} */
const PICTURES = {
  passes: (element) => ofRecording(element, "lossless", (lanes) => new PassesView(element, lanes)),
  tau: (element) =>
    ofRecording(element, "tau-moved", ([{ name, title, lines }]) => {
      return new TauView(element, Lane.of(lines, { lane: name, title }));
    }),
};

/**
 * Draws a picture of a recorded run, with the run's prompt and date above the picture.
 * @param {HTMLElement} element
 * @param {string} name
 * @param {(lanes: Recording["lanes"]) => unknown} draw
 */
function ofRecording(element, name, draw) {
  const recorded = recording(name);
  if (!recorded) {
    element.append(make("p", "ex-said", "The recording for this figure was not loaded. Reload the page."));
    return null;
  }
  const { prompt, note, lanes } = recorded;
  element.append(make("p", "ex-asked", "Prompt: ", make("q", "", prompt), ` · recorded ${note}`));
  return draw(lanes);
}

/**
 * Draws the pictures of "How it works"; called by the component's js_on_load or by a separate page.
 * @param {HTMLElement} element
 */
export function mountExplain(element) {
  const root = find(element, ".mars-explain");
  /** @type {Record<string, unknown>} */
  const pictures = {};
  root.pictures = pictures;
  const elements = /** @type {HTMLElement[]} */ ([...root.querySelectorAll("[data-picture]")]);
  // Each picture is drawn in a separate task, so that the page stays responsive.
  const drawNext = () => {
    const picture = elements.shift();
    const name = picture?.dataset.picture;
    if (!picture || !name) return;
    pictures[name] = PICTURES[name](picture);
    setTimeout(drawNext);
  };
  whenRecorded(drawNext);
  return root;
}

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

/**
 * Calls `act` when the recordings have been loaded or cannot be loaded.
 * @param {() => void} act
 */
export function whenRecorded(act) {
  if (!loading || document.getElementById("mars-recorded")) act();
  else void loading.then(act);
}

const read = new Map();
/** @type {{ runs: Record<string, string> } | null} */
let shipped = null;

// Returns the data that mountRecordings has loaded: the recordings by name.
export function came() {
  const element = document.getElementById("mars-recorded");
  shipped ||= element ? JSON.parse(element.textContent || "{}") : { runs: {} };
  return /** @type {NonNullable<typeof shipped>} */ (shipped);
}

/**
 * Returns a recording by its name; null if the page does not contain it.
 * @param {string} name
 * @returns {Recording | null}
 */
export function recording(name) {
  if (!read.has(name)) read.set(name, parse(came().runs[name]));
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
