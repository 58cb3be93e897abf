// Replaces former names of settings in data from earlier versions: traces, and control values stored in the browser.

import { FORMER_NAMES, FORMER_WORDS } from "./table.js";

const NAMES = new Map(Object.entries(FORMER_NAMES));
const WORDS = new Map(Object.entries(FORMER_WORDS).map(([name, words]) => [name, new Map(Object.entries(words))]));

/**
 * Returns settings with former names, and former values, replaced by the current ones. Throws if a setting has a value
 * under both its former and its current name.
 * @template {object} T
 * @param {T} values
 * @returns {T}
 */
export function withCurrentNames(values) {
  /** @type {Map<string, unknown>} */
  const current = new Map();
  for (const [key, value] of Object.entries(values)) {
    const name = NAMES.get(key) ?? key;
    if (current.has(name)) throw new Error(`${name} is set twice, once under a former name. Set only ${name}.`);
    current.set(name, WORDS.get(name)?.get(String(value)) ?? value);
  }
  return /** @type {T} */ (Object.fromEntries(current));
}

/**
 * Returns the header of a trace with the former names of its settings replaced.
 * @param {HeaderEvent} header
 */
export const currentHeader = (header) =>
  header.settings ? { ...header, settings: withCurrentNames(header.settings) } : header;
