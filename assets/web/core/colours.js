// The colours of the charts, read from the style sheet so that they follow the theme, and the colour of each run, which
// is that of its method. Plain AR is grey.

import { isFirst } from "./folds.js";
import { NUM_METHODS, placeOfMethod } from "./methods.js";
import { METHODS } from "./table.js";

const NUM_RUNS = 6; // number of colours that distinguish runs, not counting plain AR's grey

/** @param {Element} root */
export function coloursOf(root) {
  const style = getComputedStyle(root);
  /** @param {string} name */
  const get = (name) => style.getPropertyValue(`--rv-${name}`).trim();
  return {
    ink: get("ink"),
    page: get("page"),
    card: get("card"),
    muted: get("muted"),
    grid: get("grid"),
    line: get("line"),
    warm: get("warm"),
    mars: get("mars"),
    ar: get("ar"),
    lookup: get("lookup-fill"),
    runs: [get("ar"), ...Array.from({ length: NUM_RUNS }, (_, i) => get(`run-${i + 1}`))],
    bars: [get("bar-1"), get("ramp-2"), get("ramp-3"), get("ramp-4"), get("ramp-5")],
    font: get("sans"),
    isCoarse: window.matchMedia("(pointer: coarse)").matches,
  };
}

/** Returns a 53-bit hash of a text (cyrb53). @param {string} text */
export function hash(text) {
  let [a, b] = [0xdeadbeef, 0x41c6ce57];
  for (let i = 0; i < text.length; i += 1) {
    const code = text.charCodeAt(i);
    a = Math.imul(a ^ code, 2654435761);
    b = Math.imul(b ^ code, 1597334677);
  }
  a = Math.imul(a ^ (a >>> 16), 2246822507) ^ Math.imul(b ^ (b >>> 13), 3266489909);
  b = Math.imul(b ^ (b >>> 16), 2246822507) ^ Math.imul(a ^ (a >>> 13), 3266489909);
  return (4294967296 * (2097151 & b) + (a >>> 0)).toString(36);
}

// The colours of runs, by index in the `runs` of coloursOf. The original run, which is repeated next to its branch, has a
// separate colour, because the branch usually has the same method.
export const runColours = {
  /** @param {Pick<Lane, "method"> & { name?: string }} run */
  placeOf: ({ method, name = "" }) =>
    METHODS[method]?.isReference ? 0 : 1 + ((isFirst({ name }) ? NUM_METHODS : placeOfMethod(method)) % NUM_RUNS),
};
