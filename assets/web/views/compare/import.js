// Imports files into the tray. A file is read as text and split into runs, and the server validates each run. Either
// all runs of a file are added or none; for a rejected file, one sentence says why.

import { textOf } from "../../core/files.js";
import { lastOf } from "../../core/folds.js";
import { traceText } from "../../export/files.js";

const MOST_BYTES = 64_000_000; // maximum size of a file
const UNREAD = "this file could not be read; it may be gone, or the server did not respond.";
const START = /^\s*\{\s*"type"\s*:\s*"(header|pin)"/;

/**
 * Splits a text into runs. A run begins with its header, or with a "pin" line before the header, which contains the
 * run's name, note, rating and verdict.
 * @param {string} text
 */
export function runsOf(text) {
  /** @type {string[][]} */
  const runs = [];
  let isFresh = false; // whether the current run has only its "pin" line so far
  for (const line of text.split(/\r?\n/)) {
    if (!line.trim()) continue;
    const [, kind] = START.exec(line) || [];
    if (!runs.length || kind === "pin" || (kind === "header" && !isFresh)) runs.push([]);
    lastOf(runs).push(line);
    isFresh = kind === "pin";
  }
  return runs.map((lines) => lines.join("\n"));
}

/**
 * Returns the whole tray as the text of a file. Each trace follows a "pin" line, which contains the run's name, note,
 * rating and verdict.
 * @param {Pin[]} pins
 */
export const trayText = (pins) =>
  traceText(
    pins.flatMap(({ record: { name, note, rating, verdict, lines } }) => [
      JSON.stringify({ type: "pin", name, note, rating, verdict }),
      ...lines,
    ]),
  );

/**
 * Imports files into the tray. judge: sends a run to the server, which returns its lines and pin, or an error. Returns
 * the number of added runs and a sentence for each problem.
 * @param {File[]} files
 * @param {Judge} judge
 * @param {Tray} tray
 * @param {number} mostChars
 */
export async function importFiles(files, judge, tray, mostChars) {
  /** @type {string[]} */
  const sentences = [];
  let added = 0;
  for (const file of files) {
    try {
      for (const { lines, pin } of await judged(file, judge, mostChars)) {
        const { isNew, sentence } = await tray.add(lines, { ...pin, isImported: true });
        if (isNew) added += 1;
        else sentences.push(`${file.name}: this run is already pinned.`);
        if (sentence) sentences.push(`${file.name}: ${sentence}`);
      }
    } catch (error) {
      const { sentence } = /** @type {{ sentence?: string }} */ (error);
      sentences.push(`${file.name}: ${sentence || UNREAD}`);
    }
  }
  return { added, sentences };
}

/**
 * @param {File} file
 * @param {Judge} judge
 * @param {number} mostChars
 */
async function judged(file, judge, mostChars) {
  if (file.size > MOST_BYTES)
    throw rejection(`this file is ${megabytes(file.size)}; the limit is ${megabytes(MOST_BYTES)}.`);
  const texts = runsOf(await textOf(file));
  if (!texts.length) throw rejection("this file is empty.");
  /** @type {{ lines: string[], pin?: Partial<PinRecord> }[]} */
  const runs = [];
  for (const [i, text] of texts.entries()) {
    const which = texts.length > 1 ? `run ${i + 1}: ` : "";
    const long = `this run is ${megabytes(text.length)}; the limit is ${megabytes(mostChars)}.`;
    if (text.length > mostChars) throw rejection(which + long);
    const { lines, pin, error } = (await judge(text)) || {};
    if (!Array.isArray(lines)) throw rejection(which + (error || "the server rejected it."));
    runs.push({ lines, pin });
  }
  return runs;
}

/** @param {number} bytes */
const megabytes = (bytes) => `${Number((bytes / 1e6).toPrecision(2))} MB`;

/** @param {string} sentence */
const rejection = (sentence) => Object.assign(new Error(sentence), { sentence });
