// The decoding methods as the page names them, from their table (core/table.js).

import { METHODS } from "./table.js";

/**
 * Returns the name in METHODS for these settings. Plain AR that verifies prompt lookup's drafts, without masks, has its
 * own name.
 * @param {Partial<Settings>} settings
 */
export function nameOf({ method, lossless, lookup, block_size: blockSize }) {
  const isArLookup = method === "mars" && lossless && lookup && blockSize === 1;
  return isArLookup ? "lookup" : (method ?? "mars");
}

/**
 * Returns the facts about the method in force; a trace of a later version may have an unknown one.
 * @param {Partial<Settings> | null} settings
 */
export const factsOf = (settings) => METHODS[nameOf(settings ?? {})] ?? METHODS.mars;

/**
 * Whether every emitted token is one that AR would have chosen.
 * @param {Settings | null} settings
 */
export function isVerified(settings) {
  const { isExact, obeys } = factsOf(settings);
  return Boolean(settings && (isExact || (obeys.includes("lossless") && settings.lossless)));
}

export const NUM_METHODS = Object.keys(METHODS).length - 1; // without plain AR

/**
 * Returns the index of a lane's method among the others, which determines its colour.
 * @param {string} method
 */
export const placeOfMethod = (method) =>
  Math.max(
    0,
    Object.keys(METHODS)
      .filter((name) => name !== "ar")
      .indexOf(method),
  );
