// Judgements are rows of an append-only list. This file decides which rows count, by the same rules as
// mars_runtime/review/judgements.py, and converts rows. Pure; no DOM.

import { JUDGED } from "../../core/table.js";

export const TAGS = JUDGED.tags;
export const MOST = JUDGED.most;

/** @type {Said} */
export const NOTHING = { preference: "", ratings: [0, 0], tags: [[], []], note: "" };

/**
 * Returns the key of the unit that a row judges: reviewer, prompt and the two methods, regardless of their sides.
 * @param {Pick<JudgementRow, "reviewer" | "item" | "pair">} row
 */
export const unitOf = ({ reviewer, item, pair }) => JSON.stringify([reviewer, item, pair]);

/** @type {(a: string, b: string) => string[]} */
export const pairOf = (a, b) => [a, b].sort();

/**
 * Returns the rows that count: for each unit (unitOf), the latest row that was not undone.
 * @param {Iterable<JudgementRow>} rows
 * @returns {Map<string, JudgementRow>}
 */
export function current(rows) {
  const sorted = [...rows].sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0));
  /** @type {(row: JudgementRow, id: string) => string} */
  const key = (row, id) => `${unitOf(row)} ${id}`;
  const undone = new Set(sorted.filter(({ undoes }) => undoes).map((row) => key(row, row.undoes)));
  const counting = new Map();
  for (const row of sorted) if (!row.undoes && !undone.has(key(row, row.id))) counting.set(unitOf(row), row);
  return counting;
}

/**
 * Returns the row that undo removes: the reviewer's latest row that was not undone.
 * @param {Iterable<JudgementRow>} rows
 * @param {string} reviewer
 */
export function lastOfReviewer(rows, reviewer) {
  const all = [...rows].filter((row) => row.reviewer === reviewer);
  const undone = new Set(all.map(({ undoes }) => undoes).filter(Boolean));
  const active = all.filter(({ id, undoes }) => !undoes && !undone.has(id));
  return active.reduce(
    (last, row) => (!last || row.time >= last.time ? row : last),
    /** @type {JudgementRow | null} */ (null),
  );
}

/**
 * Returns the judgement in a row, arranged for the current sides of the two answers: left and right are swapped if the
 * answers had the opposite sides when they were judged. Returns null if their sides at that time are unknown.
 * @param {JudgementRow} row
 * @param {{ left: string, right: string } | null} shown the current sides; null while masked, when sides never change
 * @returns {Said | null}
 */
export function saidOf(row, shown) {
  const { preference, ratings, tags, note } = row;
  if (!shown || row.left === shown.left) return { preference, ratings, tags, note };
  if (row.left === undefined) return null;
  /** @type {Record<Preference, Preference>} */
  const turned = { left: "right", right: "left", equal: "equal", "": "" };
  return { preference: turned[preference], ratings: [ratings[1], ratings[0]], tags: [tags[1], tags[0]], note };
}

/** @type {(a: Said, b: Said) => boolean} */
export const isSaidAlike = (a, b) => JSON.stringify(bare(a)) === JSON.stringify(bare(b));

/** @param {Said} said */
const bare = ({ preference, ratings, tags, note }) => [preference, ratings, tags, note];

/**
 * Returns the tag for a typed text: the predefined tag that starts with it, if there is exactly one, otherwise the
 * text.
 * @param {string} typed
 */
export function tagOf(typed) {
  const text = typed.trim().slice(0, MOST.tag);
  const begun = TAGS.filter((tag) => tag.startsWith(text.toLowerCase()));
  return text && begun.length === 1 ? begun[0] : text;
}

/** @type {(tags: string[], tag: string) => string[]} */
export const toggled = (tags, tag) =>
  tags.includes(tag) ? tags.filter((known) => known !== tag) : [...tags, tag].slice(0, MOST.tags);

/**
 * @template {keyof JudgementRow} K
 * @param {JudgementRow} row
 * @param {K[]} names
 */
export const without = (row, ...names) =>
  /** @type {Omit<JudgementRow, K>} */ (
    Object.fromEntries(Object.entries(row).filter(([name]) => !names.includes(/** @type {K} */ (name))))
  );

/**
 * Returns a row as the server accepts it.
 * @param {JudgementRow} row
 */
export const sendable = (row) => without(row, "set", "pair", "isSent");

/**
 * Returns a row from the server as the browser stores it. pair: the names of the two methods, which are added to a
 * masked row, because it does not contain its sides.
 * @param {Json} received
 * @param {string} set
 * @param {string[]} pair
 * @returns {JudgementRow}
 */
export function keepable(received, set, pair) {
  const known = received.left === undefined ? pair : pairOf(received.left, received.right);
  return /** @type {JudgementRow} */ ({ ...received, set, pair: known, isSent: true });
}

/**
 * Returns the title of a method from its name, as typed by the set's author: "τ 0.95, B 4" for "tau=0.95,B=4". Unknown
 * words, such as the names of other models, are not changed.
 * @param {string} name
 */
export function titleOf(name) {
  if (name === "ar,lookup") return "AR + lookup";
  /** @param {string} word */
  const titled = (word) => {
    if (word === "ar") return "plain AR";
    const [, key, value] = /^(tau|b|B|block_size|checkpoint)=(.+)$/.exec(word) ?? [];
    if (!key) return word;
    if (key === "checkpoint") return value;
    return `${key === "tau" ? "τ" : "B"} ${value}`;
  };
  return name.split(",").map(titled).join(", ");
}

/**
 * Returns the preferred method of a row; "left" or "right" while its sides are unknown, "equal" for a tie.
 * @param {JudgementRow} row
 */
export function preferredOf(row) {
  if (row.preference === "left") return row.left ?? "left";
  if (row.preference === "right") return row.right ?? "right";
  return row.preference;
}
