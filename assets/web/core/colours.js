// The colours of the charts, read from the style sheet so that they follow the theme, and the colour of each run. A run
// has its method's colour, also while it is pinned, unless another pinned run already has that colour. Plain AR is
// grey.

import { isFirst } from "./folds.js";
import { NUM_METHODS, placeOfMethod } from "./methods.js";

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

/** @type {WeakMap<HeaderEvent, string>} */
const identities = new WeakMap();

/**
 * Returns the identity of a run: a hash of its date, checkpoint, settings and prompt.
 * @param {HeaderEvent} header
 */
export function identityOf(header) {
  const identity = identities.get(header) || hash(JSON.stringify([header.date, header.checkpoint, header.settings, header.prompt_ids])); // prettier-ignore
  identities.set(header, identity);
  return identity;
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
   * Sets the colours of the pinned runs. kept: maps the identity of each pinned run to its index in the palette.
   * @param {Map<string, number>} kept
   */
  keep(kept) {
    this.kept = kept;
    for (const listener of this.listeners) listener();
  }

  /** @param {Lane} lane */
  isKept = ({ header }) => Boolean(header && this.kept.has(identityOf(header)));

  /**
   * Returns the index of a run's colour in the `runs` of coloursOf; 0 is plain AR's grey.
   * @param {Pick<Lane, "header" | "method"> & { name?: string }} run
   */
  placeOf({ header, method, name = "" }) {
    if (method === "ar") return 0;
    // The original run, which is repeated next to its branch, has a separate colour, because the branch usually has the
    // same method.
    const index = isFirst({ name }) ? NUM_METHODS : placeOfMethod(method);
    return (header && this.kept.get(identityOf(header))) ?? index + 1;
  }

  /**
   * Returns the colour index for a run that is about to be pinned: the colour that the fewest pinned runs have. Among
   * several such colours, prefers the run's current colour, then colours that no method has. Plain AR stays grey.
   * @param {Pick<Lane, "header" | "method">} run
   */
  placeFor(run) {
    const current = this.placeOf(run);
    if (current === 0) return 0;
    const counts = new Array(NUM_RUNS + 1).fill(0);
    for (const place of this.kept.values()) counts[place] += 1;
    const others = counts.map((_, place) => place).slice(1);
    const spare = others.splice(NUM_METHODS);
    return [current, ...spare, ...others].sort((a, b) => counts[a] - counts[b])[0];
  }
}

// The run colours that all views of this page share.
export const runColours = new RunColours();
