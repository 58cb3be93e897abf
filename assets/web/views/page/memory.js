// Stores the controls and the displayed run of each view in the browser tab and restores them after a reload. Gradio
// reloads the page after a lost connection, and the visitor would otherwise lose the prompt and the answer. A page that
// is opened by a link or its address starts with the defaults.

import { store, storedBeforeReload } from "../../core/storage.js";
import { viewAt } from "../../core/tabs.js";

const [CONTROLS, RUN] = ["mars-controls", "mars-run"];
const PLACES = ["race", "throughput", "grid"]; // element ids of the views whose runs are stored
const POLL = 1000; // milliseconds between two requests for a run that is still in progress
const GONE = "The server was restarted or no longer has this run. Press Run to start it again.";

/** @type {Set<string>} */
const restored = new Set(); // tabs whose controls were restored; others still have the defaults, which must not be stored

/**
 * Stores the values of a tab's controls; called whenever a control changes. names and values are in the same order.
 * @param {string} place
 * @param {string[]} names
 * @param {unknown[]} values
 */
export function remember(place, names, values) {
  if (!restored.has(place)) return;
  const named = Object.fromEntries(names.map((name, i) => [name, values[i]]));
  store("sessionStorage", `${CONTROLS}-${place}`, JSON.stringify(named));
}

/**
 * Returns the values that a tab's controls had before the reload, or `values` if the page was not reloaded. Does not
 * ask the server, because a late answer could replace what the visitor is typing.
 * @param {string} place
 * @param {string[]} names
 * @param {unknown[]} values
 */
export function restore(place, names, values) {
  const before = controlsBefore(place);
  const current = names.map((name, i) => before[name] ?? values[i]);
  restored.add(place);
  remember(place, names, current);
  return current;
}

// Returns the checkpoint that was selected before the reload; "" if the page was not reloaded.
export const checkpointBefore = () => String(controlsBefore("live").checkpoint ?? "");

/**
 * @param {string} place
 * @returns {Record<string, unknown>}
 */
const controlsBefore = (place) => JSON.parse(storedBeforeReload(`${CONTROLS}-${place}`) || "{}");

// Stores the run that each view displays and shows it again after a reload, when the view is mounted. A view is mounted
// when its tab is first opened.
export function mountMemory() {
  for (const place of PLACES) store("sessionStorage", `${RUN}-${place}`, storedBeforeReload(`${RUN}-${place}`));
  document.addEventListener("mars-mount", ({ target }) => {
    const view = target instanceof Element && target.lineView;
    const place = view && PLACES.find((id) => document.getElementById(id)?.contains(view.root));
    if (place) mountRun(view, `${RUN}-${place}`);
  });
}

/**
 * @param {NonNullable<Element["lineView"]>} view
 * @param {string} key
 */
function mountRun(view, key) {
  const before = storedBeforeReload(key);
  new MutationObserver(() => {
    const { run, recorded } = view.reader;
    if (run && !recorded) store("sessionStorage", key, run);
  }).observe(view.root, { attributes: true, attributeFilter: ["data-run"] });
  const isLinked = location.hash.includes("=") && viewAt(location.hash) === "live";
  if (before && !isLinked) void follow(view, before);
}

/**
 * Shows the run from before the reload. If it is still in progress, requests it again until it has ended.
 * @param {NonNullable<Element["lineView"]>} view
 * @param {string} id
 */
async function follow(view, id) {
  const { reader } = view;
  const isFree = () => reader.run === null || reader.run === id || Boolean(reader.recorded); // the visitor has not started another run
  for (;;) {
    const value = await view.missed(id).catch(() => "");
    if (!isFree()) return;
    if (value) view.read(value);
    else if (reader.run !== id) return lost(view);
    if (!value || view.isOver) return;
    await new Promise((resolve) => setTimeout(resolve, POLL));
  }
}

/** @param {NonNullable<Element["lineView"]>} view */
function lost(view) {
  view.read("");
  view.fail(GONE);
  view.schedule();
}
