// The colours of the charts, read from the style sheet so that they follow the theme, and the colour of each run. A run
// has its method's colour and keeps it when it is pinned, unless another pinned run has it. Plain AR is grey.

import { isFirst } from "./folds.js";
import { NUM_METHODS, placeOfMethod } from "./methods.js";

const NUM_RUNS = 6; // colours that distinguish runs, without plain AR's grey

/** @param {Element} root */
export function coloursOf(root) {
  const style = getComputedStyle(root);
  /** @param {string} name */
  const get = (name) => style.getPropertyValue(`--rv-${name}`).trim();
  return {
    ink: get("ink"),
    card: get("card"),
    surface: get("surface"),
    muted: get("muted"),
    grid: get("grid"),
    line: get("line"),
    warm: get("warm"),
    mars: get("mars"),
    ar: get("ar"),
    lookup: get("lookup-fill"),
    lookupLine: get("lookup"),
    runs: [get("ar"), ...Array.from({ length: NUM_RUNS }, (_, i) => get(`run-${i + 1}`))],
    bars: [get("bar-1"), get("ramp-2"), get("ramp-3"), get("ramp-4"), get("ramp-5")],
    font: get("sans"),
    isCoarse: window.matchMedia("(pointer: coarse)").matches,
  };
}

/** @type {WeakMap<HeaderEvent, string>} */
const known = new WeakMap();

/**
 * Returns the identity of a run: when, on what, and with which settings it was made.
 * @param {HeaderEvent} header
 */
export function identityOf(header) {
  const found = known.get(header) || hash(JSON.stringify([header.date, header.checkpoint, header.settings, header.prompt_ids])); // prettier-ignore
  known.set(header, found);
  return found;
}

/**
 * Returns a 53-bit hash of a text (cyrb53).
 * @param {string} text
 */
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

export class RunColours {
  constructor() {
    /** @type {Map<string, number>} */
    this.kept = new Map(); // identity of a pinned run -> its index in the palette
    /** @type {Set<() => void>} */
    this.listeners = new Set();
  }

  /**
   * Sets the pinned runs.
   * @param {Map<string, number>} kept
   */
  keep(kept) {
    this.kept = kept;
    for (const listener of this.listeners) listener();
  }

  /** @param {Lane} lane */
  isKept = ({ header }) => Boolean(header && this.kept.has(identityOf(header)));

  /**
   * Returns an index in `runs` of coloursOf; 0 is plain AR's.
   * @param {Pick<Lane, "header" | "method"> & { name?: string }} run
   */
  placeOf({ header, method, name = "" }) {
    if (method === "ar") return 0;
    const own = isFirst({ name }) ? NUM_METHODS : placeOfMethod(method); // next to a branch by the same method
    return (header && this.kept.get(identityOf(header))) ?? own + 1;
  }

  /**
   * Returns the colour index of a run when it is pinned: its present one; if a pinned run has it, one that no method
   * has; if there is none, the one that the fewest pinned runs have.
   * @param {Pick<Lane, "header" | "method">} run
   */
  placeFor(run) {
    const worn = this.placeOf(run);
    if (worn === 0) return 0;
    const counts = new Array(NUM_RUNS + 1).fill(0);
    for (const place of this.kept.values()) counts[place] += 1;
    const others = counts.map((_, place) => place).slice(1);
    const spare = others.splice(NUM_METHODS);
    return [worn, ...spare, ...others].sort((a, b) => counts[a] - counts[b])[0];
  }
}

// The colours of this page.
export const runColours = new RunColours();
