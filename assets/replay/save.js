// A run as a file of its own: the page that the server keeps ready for it, with the run's own lines in it.
// Knows a view's run and where that page is; draws nothing.

import { fileAddress } from "../common/plotly.js";
import { mainLane } from "../common/trace.js";
import { fileName, textBlob } from "../export/files.js";

const PLACE = "@data"; // as in app/replay/page.py: the last one is where the data go
const FAILED = "The page for replays could not be had from the server; try again once it answers.";

// What the menu of a view offers beside the files of its lanes: nothing where no server keeps the page, as
// in a replay itself, and nothing before the run is over.
export function replayOffers(view) {
  const { root, run } = view;
  if (!root.dataset.replay || !run.lanes.every((lane) => lane.end)) return [];
  return [{ label: "The whole run", files: [{ text: "HTML", hint: "replay in one file, without a network", make: async () => ({
    name: fileName(mainLane(run), "html"), blob: textBlob(await replayHtml(root.dataset.replay, run), "text/html") }) }] }];
}

// The whole page as text.
async function replayHtml(address, run) {
  const answer = await fetch(fileAddress(address)).catch(() => null);
  if (!answer || !answer.ok) throw Object.assign(new Error(FAILED), { sentence: FAILED });
  const shell = await answer.text();
  const title = run.lanes.map((lane) => lane.title).join(" against ");
  const data = JSON.stringify({ title, value: runValue(run) }).replaceAll("<", "\\u003c");
  const place = shell.lastIndexOf(PLACE);
  return shell.slice(0, place) + data + shell.slice(place + PLACE.length);
}

// The value that shows this run again: its head, marked as recorded, its lines, and what was said of it.
function runValue(run) {
  const { header } = run.lanes[0];
  const measured = header ? [(header.date || "").slice(0, 10), header.hardware] : [];
  const recorded = run.recorded || measured.filter(Boolean).join(", on ") || true;
  const lines = [JSON.stringify({ ...run.head, from: 0, recorded })];
  for (const lane of run.lanes) for (const line of lane.lines) lines.push(`${lane.name}\t${line}`);
  for (const lane of run.lanes) if (lane.verdict !== null) lines.push(`verdict\t${JSON.stringify({ lane: lane.name, right: lane.verdict })}`);
  if (run.note.text) lines.push(`status\t${JSON.stringify(run.note)}`);
  return `${lines.join("\n")}\n`;
}
