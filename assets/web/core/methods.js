import { METHODS, SETTINGS, TAUS } from "./table.js";

/**
 * Returns the key in METHODS for these settings. MARS without masks that verifies drafts of prompt lookup has the key
 * "lookup".
 * @param {Partial<Settings>} settings
 */
export function nameOf({ method, lossless, lookup, block_size: blockSize }) {
  const isArLookup = method === "mars" && lossless && lookup && blockSize === 1;
  return isArLookup ? "lookup" : (method ?? "mars");
}

/** @param {Partial<Settings> | null} settings */
export const factsOf = (settings) => METHODS[nameOf(settings ?? {})] ?? METHODS.mars;

/**
 * Returns whether these settings guarantee that every emitted token is the one that AR would have chosen.
 * @param {Settings | null} settings
 */
export function isVerified(settings) {
  const { isExact, obeys } = factsOf(settings);
  return Boolean(settings && (isExact || (obeys.includes("lossless") && settings.lossless)));
}

/** @param {Settings} settings */
export function doesText(settings) {
  const { drafts, isReference, obeys } = factsOf(settings);
  if (isReference) return "one token per pass";
  const hasLookup = obeys.includes("lookup") && settings.lossless && settings.lookup;
  return `${drafts}${hasLookup ? " and lookup" : ""}, ${isVerified(settings) ? "verified" : "unverified"}`;
}

/**
 * Returns τ after the visitor chose a mode. Only the other mode's own τ changes; one that the visitor set stays.
 * @param {boolean} isLossless @param {number} tau
 */
export function tauAfter(isLossless, tau) {
  const [before, now] = isLossless ? [TAUS.unverified, TAUS.lossless] : [TAUS.lossless, TAUS.unverified];
  return tau === before ? now : tau;
}

// Settings with a control of Live, and those of them that act on all methods.
export const CHOSEN = /** @type {(keyof Settings)[]} */ (Object.keys(SETTINGS)).filter(
  (name) => SETTINGS[name].isShown,
);
export const COMMON = CHOSEN.filter((name) => SETTINGS[name].isCommon);

export const NUM_METHODS = Object.keys(METHODS).length - 1; // not counting plain AR

/**
 * Returns the index of a method among all methods except plain AR, which determines its colour; 0 if it is unknown.
 * @param {string} method
 */
export const placeOfMethod = (method) =>
  Math.max(
    0,
    Object.keys(METHODS)
      .filter((name) => !METHODS[name].isReference)
      .indexOf(method),
  );
