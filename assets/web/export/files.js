// Writes runs as files: the trace, a table of the passes, and a page that replays the run.

import { csvOf } from "../core/files.js";
import { headerOf, settingsOf } from "../core/folds.js";
import { factsOf } from "../core/methods.js";
import { DATA_PLACE } from "../core/table.js";
import { statusLine, valueOf } from "../core/wire.js";
import { dayOf } from "../core/words.js";

const MOST_NAME = 120; // maximum characters of a file name without its extension
const COLUMNS = ["forward", "clock_s", "ms", "accepted", "proposals", "confidences", "tau", "B", "stop", "text"];

/** @param {Lane} lane @param {string} extension */
export function fileName(lane, extension) {
  const [header, settings] = [headerOf(lane), settingsOf(lane)];
  const method = !factsOf(settings).obeys.includes("tau")
    ? [settings.method, ...(factsOf(settings).isReference ? [] : [`B${settings.block_size}`])]
    : [`tau${settings.tau}`, `B${settings.block_size}`, settings.lossless ? "lossless" : ""];
  const date = (header.date || "").slice(0, 19).replaceAll(":", "-");
  const parts = [header.checkpoint, ...method, date].map((part) =>
    String(part)
      .replace(/[^\w.-]+/g, "_")
      .replace(/^[_.]+/, ""),
  );
  return `${parts.filter(Boolean).join("-").slice(0, MOST_NAME)}.${extension}`;
}

/** @param {string[]} lines */
export const traceText = (lines) => lines.map((line) => `${line}\n`).join("");

/** @param {Lane} lane */
export const stepsCsv = (lane) => csvOf([COLUMNS, ...stepRows(lane)]);

/** @param {Lane} lane */
function stepRows(lane) {
  return lane.steps.map((step) => {
    const { settings } = step;
    const { obeys } = factsOf(settings);
    const tokens = lane.tokens.slice(step.first, step.first + step.count);
    return [
      step.index + 1,
      Number(step.clock.toFixed(6)),
      Number((step.seconds * 1000).toFixed(4)),
      step.count,
      JSON.stringify(step.proposals.map(([id]) => lane.tokenName(id))),
      JSON.stringify(step.proposals.map(([, confidence]) => confidence)),
      obeys.includes("tau") ? settings.tau : "",
      obeys.includes("block_size") ? step.blockSize || settings.block_size : "",
      step.stop,
      tokens.map((token) => token.text + (token.rest || "")).join(""),
    ];
  });
}

/**
 * Returns whether a view's run can be saved as a page: the page has a server with the template, and the run has ended.
 * @param {View} given
 */
export function canSaveReplay({ root, run }) {
  return Boolean(root.dataset.replay && run && run.lanes.length && run.lanes.every((lane) => lane.end));
}

/**
 * Returns the text of a page that replays a run, labelled as recorded. Throws if the server's template does not load.
 * @param {{ root: HTMLElement, run: Run }} given
 */
export async function replayHtml({ root, run }) {
  const answer = await fetch(root.dataset.replay || "");
  if (!answer.ok) throw new Error("The replay page did not load. Try again.");
  const shell = await answer.text();
  const title = run.lanes.map((lane) => lane.title).join(" against ");
  const header = headerOf(run.lanes[0]);
  const recorded = run.recorded || [dayOf(header), header.hardware].filter(Boolean).join(", on ") || true;
  const value = valueOf({ ...run.head, from: 0, recorded }, run.lanes, run.note.text ? [statusLine(run.note)] : []);
  const data = JSON.stringify({ title, value }).replaceAll("<", "\\u003c");
  const dataAt = shell.lastIndexOf(DATA_PLACE);
  return shell.slice(0, dataAt) + data + shell.slice(dataAt + DATA_PLACE.length);
}
