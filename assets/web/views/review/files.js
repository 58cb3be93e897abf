// Exports a set, merges files of judgements, and turns an answer into a run for the Live tab. All of them use the
// server.

import { Lane } from "../../core/trace.js";
import { valueOf } from "../../core/wire.js";
import { dayOf, joined } from "../../core/words.js";
import { download, textBlob } from "../../core/files.js";
import { pairOf, sendable } from "./rows.js";
import { pathOf } from "./server.js";

/** @type {Record<string, [ending: string, kind: string]>} */
const KINDS = {
  jsonl: ["jsonl", "application/x-ndjson"],
  csv: ["csv", "text/csv"],
  html: ["html", "text/html"],
  comparator: ["json", "application/json"],
};

/**
 * Downloads the set and its judgements as a file.
 * @param {ReviewServer} server
 * @param {ReviewAbout} about
 * @param {Iterable<JudgementRow>} rows
 * @param {string} form
 * @param {number} way the method compared with the reference; used only by the format "comparator"
 */
export async function saveFile(server, about, rows, form, way) {
  const posted = { form, rows: [...rows].map(sendable), way };
  const text = await server.text(`${pathOf(about.address)}/export`, posted);
  const [ending, kind] = KINDS[form];
  const suffix = form === "comparator" ? `-comparator-${way}` : "";
  download(`review-${about.name.replaceAll(/[^\w-]+/g, "-")}${suffix}.${ending}`, textBlob(text, kind));
}

/**
 * Merges a file of judgements with this browser's rows. Returns the rows that are new, and the number of conflicts.
 * @param {ReviewServer} server
 * @param {ReviewAbout} about
 * @param {JudgementRow[]} own
 * @param {string} text
 * @returns {Promise<{ fresh: JudgementRow[], conflicts: number }>}
 */
export async function mergedRows(server, about, own, text) {
  const merged = await server.json(`${pathOf(about.address)}/merge`, { rows: own.map(sendable), text });
  const known = new Set(own.map(({ id }) => id));
  const fresh = merged.rows
    .filter((/** @type {Json} */ row) => !known.has(row.id))
    .map((/** @type {Json} */ row) => ({ ...row, set: about.id, pair: pairOf(row.left, row.right), isSent: false }));
  return { fresh, conflicts: merged.num_conflicts };
}

/**
 * Returns an answer as a value for the race view, together with AR's answer if the set contains it.
 * @param {ReviewServer} server
 * @param {ReviewAbout} about
 * @param {number} number
 * @param {number} way
 */
export async function replayOf(server, about, number, way) {
  const ar = about.ways.findIndex(({ settings }) => settings?.method === "ar");
  const ways = ar >= 0 && ar !== way ? [way, ar] : [way];
  const paths = ways.map((index) => `${pathOf(about.address)}/items/${number}/${index}`);
  const texts = await Promise.all(paths.map((path) => server.text(path)));
  const lanes = texts.map((text, i) => {
    const { settings, name } = about.ways[ways[i]];
    return Lane.of(text.split("\n"), { lane: settings?.method ?? "mars", title: name });
  });
  const named = lanes.map(({ name, title }) => ({ lane: name, title }));
  const recorded = joined(dayOf(lanes[0].header), `${about.name}, ${about.items[number].id}`);
  return valueOf({ run: `review-${about.id}-${number}-${way}`, lanes: named, pace: 0, recorded }, lanes);
}
