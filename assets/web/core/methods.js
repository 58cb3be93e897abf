// Which ways of decoding there are, as the page speaks of them: what follows from their table (core/table.js).

import { METHODS } from "./table.js";

/**
 * What is known of the method that is in force; a trace may come from a later version, with one that is not listed.
 * @param {{ method?: string } | null} settings
 */
export const factsOf = (settings) => METHODS[settings?.method ?? "mars"] ?? METHODS.mars;

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
