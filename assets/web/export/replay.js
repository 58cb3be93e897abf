// A run as a file of its own: the page that the server keeps ready for it, with the run's own lines in it.
// Knows a view's run and where that page is; draws nothing.

import { headerOf } from "../core/folds.js";
import { fileAddress } from "../core/plotly.js";
import { statusLine, valueOf } from "../core/wire.js";

const PLACE = "@data"; // as in app/site.py: the last one is where the data go

/**
 * Only where a server keeps the page, and once the run is over.
 * @param {View} given
 */
export function canSaveReplay({ root, run }) {
  return Boolean(root.dataset.replay && run && run.lanes.length && run.lanes.every((lane) => lane.end));
}

/**
 * The whole page as text. Throws where the server does not answer.
 * @param {{ root: HTMLElement, run: Run }} given
 */
export async function replayHtml({ root, run }) {
  const answer = await fetch(fileAddress(root.dataset.replay || ""));
  if (!answer.ok) throw new Error("The page for replays did not load; try again.");
  const shell = await answer.text();
  const title = run.lanes.map((lane) => lane.title).join(" against ");
  const data = JSON.stringify({ title, value: runValue(run) }).replaceAll("<", "\\u003c");
  const place = shell.lastIndexOf(PLACE);
  return shell.slice(0, place) + data + shell.slice(place + PLACE.length);
}

/**
 * The value that shows this run again: its head, marked as recorded, its lines, and what was said of it.
 * @param {Run} run
 */
function runValue(run) {
  const header = headerOf(run.lanes[0]);
  const recorded =
    run.recorded || [(header.date || "").slice(0, 10), header.hardware].filter(Boolean).join(", on ") || true;
  return valueOf({ ...run.head, from: 0, recorded }, run.lanes, run.note.text ? [statusLine(run.note)] : []);
}
