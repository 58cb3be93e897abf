// State of a tab that survives a reload: the controls of the Live tab and the displayed run. Gradio reloads the page
// after a lost connection; without this the visitor would lose prompt and answer. A page that is opened by its address
// starts fresh.

import { store, storedBeforeReload } from "../../core/storage.js";
import { queryOf } from "../../export/link.js";

const [CONTROLS, RUN] = ["mars-controls", "mars-run"];
const POLL = 1000; // milliseconds between two requests for a run that the server still decodes
const GONE = "The server was restarted or no longer has this run. Press Run to start it again.";

/**
 * Remembers the controls. Called with each change of one; names and values in the same order.
 * @param {string[]} names
 * @param {unknown[]} values
 */
export function remember(names, values) {
  store("sessionStorage", CONTROLS, queryOf(names, values));
}

// The controls as they were before the reload, written as the query of a link; "" for a fresh page.
export const remembered = () => storedBeforeReload(CONTROLS);

/**
 * Shows the run from before the reload and follows it to its end if the server is still decoding it.
 * @param {NonNullable<Element["lineView"]>} view
 */
export function mountMemory(view) {
  const before = storedBeforeReload(RUN);
  const { root } = view;
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
