// Links that replay a run: the fragment contains the run itself. The server validates it before it is drawn.

import { LIMITS, LINKED } from "../core/table.js";
import { hasView } from "../core/tabs.js";
import { SHARE } from "../core/texts.js";
import { valueOf } from "../core/wire.js";

const MOST_FRAGMENT = 8000; // maximum characters of a fragment that mail and chat programs do not cut
const MOST_LONG = 100_000; // maximum characters of a fragment that every browser opens
const DIGITS = 4; // significant digits of probabilities in a link
// Fields of a trace row that a link leaves out, because the server computes them again.
const DERIVED = ["sources", "loop", "spread"];
const BROKEN = "The run in this link cannot be read. Ask for a new link.";
/** @param {string} fragment */
const unknown = (fragment) => `This page has nothing at the address ${fragment.slice(0, 40)}. Choose a tab.`;

/** @param {Run} run */
const valueForLink = (run) =>
  valueOf(
    { run: "", lanes: run.head.lanes },
    run.lanes.map(({ name, lines }) => ({ name, lines: lines.map(slim), verdict: null })),
  );

/** @param {string} line */
function slim(line) {
  const event = JSON.parse(line);
  if (event.type !== "step") return line;
  for (const row of event.rows) {
    if (row.proposals) row.proposals = row.proposals.map(shorter);
    if (row.checks) row.checks = row.checks.map(shorter);
    for (const name of DERIVED) delete row[name];
  }
  return JSON.stringify(event);
}

/**
 * Shortens the probabilities in a list such as [id, probability, ...], also in lists inside it. Ids, which are
 * integers, are not changed.
 * @param {any} value @returns {any}
 */
const shorter = (value) =>
  Array.isArray(value) ? value.map(shorter) : Number.isInteger(value) ? value : Number(value.toPrecision(DIGITS));

/**
 * Returns the link to a finished run, and whether it is so long that some programs may cut it. If the run is too long
 * for a link, throws an error with a `sentence` for the visitor.
 * @param {Run} run
 */
export async function linkTo(run) {
  const packed = await pack(valueForLink(run));
  if (packed.length > MOST_LONG) throw Object.assign(new Error(SHARE.runTooLong), { sentence: SHARE.runTooLong });
  return {
    link: `${location.origin}${location.pathname}#run=${packed}`,
    isLong: packed.length > MOST_FRAGMENT,
  };
}

/**
 * Returns the run that the fragment of an address contains; null if there is none. Throws if the run is malformed.
 * @param {string} fragment
 */
export async function broughtBy(fragment) {
  const [, content] = /^#run=([\w-]+)$/.exec(fragment) || [];
  return content ? unpack(content) : null;
}

/**
 * Shows the run that a fragment of the page's address contains, or a sentence if it is neither a run nor a view.
 * Returns the run as a value (core/wire.js), "" if there is no run or the run cannot be shown.
 * @param {{ server: Server, read(value: string): void, fail(sentence?: string): void, schedule(): void }} view
 * @param {string} fragment
 */
export async function openLink(view, fragment) {
  if (hasView(fragment) || !view.server.shared) return "";
  const value = await broughtBy(fragment).catch(() => "");
  const answer =
    value === null ? { error: unknown(fragment) } : await view.server.shared(value).catch(() => ({ error: BROKEN }));
  if ("value" in answer) {
    view.read(answer.value);
    return answer.value;
  }
  view.read("");
  view.fail(answer.error);
  view.schedule();
  return "";
}

/** @param {string[]} names @param {unknown[]} values */
export function queryOf(names, values) {
  const chosen = new Map(names.map((name, i) => [name, String(values[i] ?? "")]));
  if (!chosen.get("system")) chosen.delete("system"); // without it, the checkpoint's default system prompt is used
  return new URLSearchParams([...chosen]).toString();
}

/** Returns whether a query sets the prompt or the controls. @param {string} query */
export const setsControls = (query) => [...new URLSearchParams(query).keys()].some((name) => LINKED.includes(name));

/** Compresses a text and encodes it in letters, digits, - and _ (URL-safe Base64). @param {string} text */
export async function pack(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let letters = "";
  for (let at = 0; at < bytes.length; at += 8192) letters += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/**
 * Decodes a text encoded by `pack`. Throws if the encoding is invalid or the text is longer than any run.
 * @param {string} packed
 */
export async function unpack(packed) {
  const letters = atob(packed.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let text = "";
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    text += decoder.decode(value, { stream: true });
    if (text.length > LIMITS.imported) throw new Error("The run in this link is too long.");
  }
  return text + decoder.decode();
}
