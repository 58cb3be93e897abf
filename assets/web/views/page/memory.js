// State of a browser tab that survives a reload: the controls and the displayed run of each of the page's tabs. Gradio
// reloads the page after a lost connection; without this the visitor would lose prompt and answer. A page that is opened
// by its address starts fresh.

import { withCurrentNames } from "../../core/former.js";
import { store, storedBeforeReload } from "../../core/storage.js";
import { viewAt } from "../../core/tabs.js";

const [CONTROLS, RUN] = ["mars-controls", "mars-run"];
const PLACES = ["race", "batch", "grid", "load", "stability"]; // ids of the views with remembered runs
const POLL = 1000; // milliseconds between two requests for a run that the server still decodes
const GONE = "The server was restarted or no longer has this run. Press Run to start it again.";

/** @type {Set<string>} */
const restored = new Set(); // until then the controls of a tab have the page's defaults, which must not be stored

/**
 * Stores the controls of a tab. Called with each change of one; names and values in the same order.
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
 * Returns the values of a tab's controls before the reload; the given ones on a fresh page. Works without the server, so
 * that a late answer cannot replace what the visitor types.
 * @param {string} place
 * @param {string[]} names
 * @param {unknown[]} values
 */
export function restore(place, names, values) {
  const before = controlsBefore(place);
  const found = names.map((name, i) => before[name] ?? values[i]);
  restored.add(place);
  remember(place, names, found);
  return found;
}

// The checkpoint that was selected before the reload; "" for a fresh page.
export const checkpointBefore = () => String(controlsBefore("live").checkpoint ?? "");

/**
 * @param {string} place
 * @returns {Record<string, unknown>}
 */
const controlsBefore = (place) => withCurrentNames(JSON.parse(storedBeforeReload(`${CONTROLS}-${place}`) || "{}"));

// Remembers the run of each view, and shows it again after a reload. A view mounts when its tab is first opened.
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
    const { run, recorded } = view.feed;
    if (run && !recorded) store("sessionStorage", key, run);
  }).observe(view.root, { attributes: true, attributeFilter: ["data-run"] });
  const isLinked = location.hash.includes("=") && viewAt(location.hash) === "live";
  if (before && !isLinked) void follow(view, before);
}

/**
 * Shows the run from before the reload and follows it to its end if the server is still decoding it.
 * @param {NonNullable<Element["lineView"]>} view
 * @param {string} id
 */
async function follow(view, id) {
  const { feed } = view;
  const isFree = () => feed.run === null || feed.run === id || Boolean(feed.recorded); // the visitor has not started another run
  for (;;) {
    const value = await view.missed(id).catch(() => "");
    if (!isFree()) return;
    if (value) view.read(value);
    else if (feed.run !== id) return lost(view);
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
