// Former names of settings, in what an earlier version wrote: traces, and the controls that a browser remembers.

import { FORMER_NAMES, FORMER_WORDS } from "./table.js";

const NAMES = new Map(Object.entries(FORMER_NAMES));
const WORDS = new Map(Object.entries(FORMER_WORDS).map(([name, words]) => [name, new Map(Object.entries(words))]));

/**
 * Returns values by the current names of settings, with current words for former ones. Throws if a setting has a value
 * under both names.
 * @template {object} T
 * @param {T} values
 * @returns {T}
 */
export function withCurrentNames(values) {
  /** @type {Map<string, unknown>} */
  const current = new Map();
  for (const [given, value] of Object.entries(values)) {
    const name = NAMES.get(given) ?? given;
    if (current.has(name)) throw new Error(`A former name of ${name} is given next to it: give only ${name}.`);
    current.set(name, WORDS.get(name)?.get(String(value)) ?? value);
  }
  return /** @type {T} */ (Object.fromEntries(current));
}

/**
 * Returns the header of a trace with the current names of its settings.
 * @param {HeaderEvent} header
 */
export const currentHeader = (header) =>
  header.settings ? { ...header, settings: withCurrentNames(header.settings) } : header;
