// The conversation over a reload of its page: kept as text when the page goes, read when the same tab comes back. A page
// that is opened anew, by a link for instance, begins anew. Knows the tree, no page.

import { Tree } from "./tree.js";

const KEY = "mars-conversation";
const MOST_CHARACTERS = 2_000_000; // of runs that can be shown again; a tab may store some five million

/**
 * The tree as text. Of a run that goes on what it has written counts; of runs to be shown again the latest that fit.
 * @param {Tree} tree
 */
export function written(tree) {
  const placeOf = (/** @type {Turn | null} */ turn) => (turn ? tree.turns.indexOf(turn) : -1);
  let left = MOST_CHARACTERS;
  const values = tree.turns.map((turn) => turn.value).reverse();
  const kept = values.map((value) => ((left -= value.length) >= 0 ? value : "")).reverse();
  const turns = tree.turns.map(({ parent, next, prompt, run, told }, i) => ({
    ...{ prompt, run, told, value: kept[i] },
    ...{ parent: placeOf(parent), next: placeOf(next) },
  }));
  return JSON.stringify({ first: placeOf(tree.first), turns });
}

/**
 * The tree that such a text says; one without turns where it says none.
 * @param {string} text
 */
export function readTree(text) {
  const tree = new Tree();
  try {
    const { first, turns } = /** @type {{ first: number, turns: StoredTurn[] }} */ (JSON.parse(text));
    tree.turns = turns.map(({ prompt, run, told, value }) => ({
      ...{ parent: null, next: null, isOver: true },
      ...{ prompt: String(prompt), run: String(run), value: String(value), told },
    }));
    const at = (/** @type {number} */ place) => tree.turns[place] || null;
    tree.turns.forEach((turn, i) => Object.assign(turn, { parent: at(turns[i].parent), next: at(turns[i].next) }));
    tree.first = at(first);
    return tree;
  } catch {
    return new Tree();
  }
}

// The tree of this tab before it was loaded again.
export function restored() {
  const [arrival] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType("navigation"));
  try {
    return arrival?.type === "navigate" ? new Tree() : readTree(window.sessionStorage.getItem(KEY) || "");
  } catch {
    return new Tree(); // a page within another may have no storage
  }
}

/** @param {Tree} tree */
export function store(tree) {
  try {
    window.sessionStorage.setItem(KEY, written(tree));
  } catch {
    // it then ends with this page
  }
}
