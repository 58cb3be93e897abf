// Which ways of decoding there are, as the page speaks of them: a copy of mars_runtime/methods.py, held against it by
// tests/app/test_methods.py. `obeys`: the settings that act on a method; `isExact`: it writes AR's own text in any case.

/** @type {Record<string, { title: string, obeys: (keyof Settings)[], isExact: boolean }>} */
export const METHODS = {
  // prettier-ignore
  mars: { title: "MARS", obeys: ["tau", "block_size", "lossless", "groups", "lookup", "threshold", "target"], isExact: false },
  ar: { title: "plain AR", obeys: [], isExact: true },
  jacobi: { title: "Jacobi", obeys: ["block_size"], isExact: true },
  // prettier-ignore
  speculative: { title: "speculative", obeys: ["tau", "block_size", "groups", "lookup", "draft", "masked"], isExact: true },
  block_diffusion: { title: "block diffusion", obeys: ["tau", "block_size"], isExact: false },
};

/**
 * What is known of the method that is in force; a trace may come from a later version, with one that is not listed.
 * @param {Pick<Settings, "method"> | null} settings
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
