// A link that replays a run: the run itself in its fragment, which no server sees, where it is short enough; else the name
// under which the page keeps it. What a link brings is checked by the server's trace reader before it is drawn.

import { LIMITS } from "../core/table.js";
import { valueOf } from "../core/wire.js";

const MOST_FRAGMENT = 8000; // characters that mail and chat leave whole
const MOST_LONG = 100_000; // that every browser opens
const DIGITS = 4; // of probabilities; what was decided stands in the trace, and times keep all of theirs
const [WHOLE, KEPT] = ["run", "kept"];
const BROKEN = "The run in this link cannot be read: ask for the link again.";

/**
 * The run that a link is to bring.
 * @param {Run} run
 */
const told = (run) =>
  valueOf(
    { run: "", lanes: run.head.lanes },
    run.lanes.map(({ name, lines }) => ({ name, lines: lines.map(slim), verdict: null })),
  );

/**
 * A line of a trace with shorter probabilities.
 * @param {string} line
 */
function slim(line) {
  const event = JSON.parse(line);
  if (event.type !== "step") return line;
  for (const row of event.rows) {
    if (row.proposals) row.proposals = row.proposals.map(shorter);
    if (row.checks) row.checks = row.checks.map(shorter);
  }
  return JSON.stringify(event);
}

/**
 * [token, probability, ...] with what further such lists it holds; ids are whole and stay.
 * @param {any} value
 * @returns {any}
 */
const shorter = (value) =>
  Array.isArray(value) ? value.map(shorter) : Number.isInteger(value) ? value : Number(value.toPrecision(DIGITS));

/**
 * The link to a run that is over, and whether it is so long that some programs may cut it; throws an error with a `sentence`
 * where it can have none.
 * @param {Run} run
 * @param {Server} server
 * @returns {Promise<{ link: string, isLong: boolean }>}
 */
export async function linkTo(run, server) {
  const value = told(run);
  const base = `${location.origin}${location.pathname}`;
  const packed = await pack(value);
  const whole = `${base}#${WHOLE}=${packed}`;
  if (packed.length <= MOST_FRAGMENT) return { link: whole, isLong: false };
  const answer = (await server.keep?.(value).catch(() => null)) ?? { error: "The server does not answer: try again." };
  if ("name" in answer) return { link: `${base}#${KEPT}=${answer.name}`, isLong: false };
  if (packed.length <= MOST_LONG) return { link: whole, isLong: true };
  throw Object.assign(new Error(answer.error), { sentence: answer.error });
}

/**
 * What the server is asked for by a fragment, null for one that brings no run; throws for one that is broken.
 * @param {string} fragment
 */
export async function broughtBy(fragment) {
  const [, kind, rest] = /^#(run|kept)=([\w-]+)$/.exec(fragment) || [];
  if (kind === KEPT) return { name: rest };
  return kind === WHOLE ? { value: await unpack(rest) } : null;
}

/**
 * Shows the run that the page's address brings, if it brings one.
 * @param {{ server: Server, read(value: string): void, fail(sentence?: string): void, schedule(): void }} view
 * @param {string} fragment
 */
export async function openLink(view, fragment) {
  const asked = await broughtBy(fragment).catch(() => ({ error: BROKEN }));
  if (!asked || !view.server.shared) return;
  const answer = "error" in asked ? asked : await view.server.shared(asked).catch(() => ({ error: BROKEN }));
  if ("value" in answer) return view.read(answer.value);
  view.read("");
  view.fail(answer.error);
  view.schedule();
}

/**
 * The query of a link that sets these controls; names and values in the same order.
 * @param {string[]} names
 * @param {unknown[]} values
 */
export function queryOf(names, values) {
  const chosen = new Map(names.map((name, i) => [name, String(values[i] ?? "")]));
  if (chosen.get("auto") === "true") chosen.set("block_size", "auto");
  chosen.delete("auto");
  if (!chosen.get("system")) chosen.delete("system"); // the checkpoint's own
  return new URLSearchParams([...chosen]).toString();
}

/**
 * A text as letters, digits, - and _.
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
 * The text again; throws for what is none, and for what is longer than any run.
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
