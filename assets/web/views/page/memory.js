// State of a tab that survives a reload: the controls of the Live tab and the displayed run. Gradio reloads the page
// after a lost connection; without this the visitor would lose prompt and answer. A page that is opened by its address
// starts fresh.

import { store, storedBeforeReload } from "../../core/storage.js";

const [CONTROLS, RUN] = ["mars-controls", "mars-run"];
const POLL = 1000; // milliseconds between two requests for a run that the server still decodes
const GONE = "The server was restarted or no longer has this run. Press Run to start it again.";

let isRestored = false; // until then the controls have the page's defaults, which must not be stored

/**
 * Stores the controls. Called with each change of one; names and values in the same order.
 * @param {string[]} names
 * @param {unknown[]} values
 */
export function remember(names, values) {
  if (!isRestored) return;
  store("sessionStorage", CONTROLS, JSON.stringify(Object.fromEntries(names.map((name, i) => [name, values[i]]))));
}

/**
 * Returns the values of the controls before the reload; the given ones on a fresh page. Works without the server, so
 * that a late answer cannot replace what the visitor types.
 * @param {string[]} names
 * @param {unknown[]} values
 */
export function restore(names, values) {
  const before = controlsBefore();
  const restored = names.map((name, i) => before[name] ?? values[i]);
  isRestored = true;
  remember(names, restored);
  return restored;
}

// The checkpoint that was selected before the reload; "" for a fresh page.
export const checkpointBefore = () => String(controlsBefore().checkpoint ?? "");

/** @returns {Record<string, unknown>} */
const controlsBefore = () => JSON.parse(storedBeforeReload(CONTROLS) || "{}");

/**
 * Shows the run from before the reload and follows it to its end if the server is still decoding it.
 * @param {NonNullable<Element["lineView"]>} view
 */
export function mountMemory(view) {
  const before = storedBeforeReload(RUN);
  const { root } = view;
  store("sessionStorage", RUN, before);
  new MutationObserver(() => {
    const { run } = view;
    if (run && !run.recorded) store("sessionStorage", RUN, run.id);
  }).observe(root, { attributes: true, attributeFilter: ["data-run"] });
  if (before && !location.hash) void follow(view, before);
}

/**
 * @param {NonNullable<Element["lineView"]>} view
 * @param {string} id
 */
async function follow(view, id) {
  const first = view.run?.id;
  const isFree = () => view.run?.id === id || view.run?.id === first; // the visitor has not started another run
  for (;;) {
    const value = await view.missed(id).catch(() => "");
    if (!isFree()) return;
    if (value) view.read(value);
    else if (view.run?.id !== id) return lost(view);
    if (!value || view.run?.lanes.every((lane) => lane.end)) return;
    await new Promise((resolve) => setTimeout(resolve, POLL));
  }
}

/** @param {NonNullable<Element["lineView"]>} view */
function lost(view) {
  view.read("");
  view.fail(GONE);
  view.schedule();
}
