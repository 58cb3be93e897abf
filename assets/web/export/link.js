// Links that replay a run. Where the page's server stores runs, the link is short and has the name of the stored run;
// otherwise the run itself is in the link's fragment. The server's trace reader validates it before it is drawn.

import { LIMITS } from "../core/table.js";
import { valueOf } from "../core/wire.js";

const MOST_FRAGMENT = 8000; // characters that mail and chat do not cut
const MOST_LONG = 100_000; // that every browser opens
const DIGITS = 4; // of probabilities; decisions are in the trace, and times keep all digits
const DERIVED = ["sources", "loop", "spread"];
const [WHOLE, KEPT] = ["run", "kept"];
const BROKEN = "The run in this link cannot be read. Ask for a new link.";

/**
 * Returns the run for a link.
 * @param {Run} run
 */
const told = (run) =>
  valueOf(
    { run: "", lanes: run.head.lanes },
    run.lanes.map(({ name, lines }) => ({ name, lines: lines.map(slim), verdict: null })),
  );

/**
 * Returns a trace line with shorter probabilities and without what the server derives again.
 * @param {string} line
 */
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
 * [token, probability, ...], with further such lists inside it; ids are integers and unchanged.
 * @param {any} value
 * @returns {any}
 */
const shorter = (value) =>
  Array.isArray(value) ? value.map(shorter) : Number.isInteger(value) ? value : Number(value.toPrecision(DIGITS));

/**
 * Returns the link to a finished run, and whether it is so long that some programs may cut it. Throws an error with a
 * `sentence` if the run can have no link.
 * @param {Run} run
 * @param {Server} server
 * @returns {Promise<{ link: string, isLong: boolean }>}
 */
export async function linkTo(run, server) {
  const value = told(run);
  const base = `${location.origin}${location.pathname}`;
  const answer = (await server.keep?.(value).catch(() => null)) ?? { error: "The server did not answer. Try again." };
  if ("name" in answer) return { link: `${base}#${KEPT}=${answer.name}`, isLong: false };
  const packed = await pack(value);
  const whole = `${base}#${WHOLE}=${packed}`;
  if (packed.length <= MOST_LONG) return { link: whole, isLong: packed.length > MOST_FRAGMENT };
  throw Object.assign(new Error(answer.error), { sentence: answer.error });
}

/**
 * Returns the server request for a fragment, null for one without a run; throws if it is malformed.
 * @param {string} fragment
 */
export async function broughtBy(fragment) {
  const [, kind, rest] = /^#(run|kept)=([\w-]+)$/.exec(fragment) || [];
  if (kind === KEPT) return { name: rest };
  return kind === WHOLE ? { value: await unpack(rest) } : null;
}

/**
 * Shows the run of the page's address, if it has one, and returns its value.
 * @param {{ server: Server, read(value: string): void, fail(sentence?: string): void, schedule(): void }} view
 * @param {string} fragment
 */
export async function openLink(view, fragment) {
  const asked = await broughtBy(fragment).catch(() => ({ error: BROKEN }));
  if (!asked || !view.server.shared) return "";
  const answer = "error" in asked ? asked : await view.server.shared(asked).catch(() => ({ error: BROKEN }));
  if ("value" in answer) {
    view.read(answer.value);
    return answer.value;
  }
  view.read("");
  view.fail(answer.error);
  view.schedule();
  return "";
}

/**
 * Returns the query of a link that sets these controls; names and values in the same order.
 * @param {string[]} names
 * @param {unknown[]} values
 */
export function queryOf(names, values) {
  const chosen = new Map(names.map((name, i) => [name, String(values[i] ?? "")]));
  if (chosen.get("auto") === "true") chosen.set("block_size", "auto");
  chosen.delete("auto");
  if (!chosen.get("system")) chosen.delete("system"); // empty means the checkpoint's own
  return new URLSearchParams([...chosen]).toString();
}

/**
 * Encodes a text as letters, digits, - and _.
 * @param {string} text
 */
export async function pack(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let letters = "";
  for (let at = 0; at < bytes.length; at += 8192) letters += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/**
 * Decodes it; throws if it is invalid, or longer than any run.
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
    if (text.length > LIMITS.imported) throw new Error("This is longer than any run.");
  }
  return text + decoder.decode();
}
