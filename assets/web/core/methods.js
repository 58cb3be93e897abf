// Which ways of decoding there are, as the page speaks of them: what follows from their table (core/table.js).

import { METHODS } from "./table.js";

/**
 * The name in METHODS of what these settings run. Plain AR that verifies drafts of prompt lookup, without masks, has a name of
 * its own.
 * @param {Partial<Settings>} settings
 */
export function nameOf({ method, lossless, lookup, block_size: blockSize }) {
  const isArLookup = method === "mars" && lossless && lookup && blockSize === 1;
  return isArLookup ? "lookup" : (method ?? "mars");
}

/**
 * What is known of the method that is in force; a trace may come from a later version, with one that is not listed.
 * @param {Partial<Settings> | null} settings
 */
export const factsOf = (settings) => METHODS[nameOf(settings ?? {})] ?? METHODS.mars;

/**
 * Whether only tokens leave that AR would have chosen.
 * @param {Settings | null} settings
 */
export function isVerified(settings) {
  const { isExact, obeys } = factsOf(settings);
  return Boolean(settings && (isExact || (obeys.includes("lossless") && settings.lossless)));
}

export const NUM_METHODS = Object.keys(METHODS).length - 1; // plain AR aside

/**
 * The place of a lane's method among the others: lanes of a race differ in colour by it.
 * @param {string} method
 */
export const placeOfMethod = (method) =>
  Math.max(
    0,
    Object.keys(METHODS)
      .filter((name) => name !== "ar")
      .indexOf(method),
  );
