// Judgements as rows that are only ever added, and what of them counts: as mars_runtime/review/judgements.py has it. Pure.

import { JUDGED } from "../../core/table.js";

export const TAGS = JUDGED.tags;
export const MOST = JUDGED.most;

/** @type {Said} */
export const NOTHING = { preference: "", ratings: [0, 0], tags: [[], []], note: "" };

/**
 * What a row is about: reviewer, prompt and the two ways, whatever side they stood on.
 * @param {Pick<JudgementRow, "reviewer" | "item" | "pair">} row
 */
export const unitOf = ({ reviewer, item, pair }) => JSON.stringify([reviewer, item, pair]);

/** @type {(one: string, other: string) => string[]} */
export const pairOf = (one, other) => [one, other].sort();

/**
 * The latest row of each unit that was not undone.
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
 * The latest row of a reviewer that counts or did before another came over it: what undo takes away.
 * @param {Iterable<JudgementRow>} rows
 * @param {string} reviewer
 */
export function lastOfReviewer(rows, reviewer) {
  const all = [...rows].filter((row) => row.reviewer === reviewer);
  const undone = new Set(all.map(({ undoes }) => undoes).filter(Boolean));
  const left = all.filter(({ id, undoes }) => !undoes && !undone.has(id));
  return left.reduce(
    (last, row) => (!last || row.time >= last.time ? row : last),
    /** @type {JudgementRow | null} */ (null),
  );
}

/**
 * What a row says of two answers as they stand now: with its sides turned where they stood the other way round; null
 * where nobody here knows how they stood.
 * @param {JudgementRow} row
 * @param {{ left: string, right: string } | null} shown null: masked, where sides never change
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

/** @type {(one: Said, other: Said) => boolean} */
export const isSaidAlike = (one, other) => JSON.stringify(bare(one)) === JSON.stringify(bare(other));

/** @param {Said} said */
const bare = ({ preference, ratings, tags, note }) => [preference, ratings, tags, note];

/**
 * A tag as it is kept: one of the list where what was typed begins only that.
 * @param {string} typed
 */
export function tagOf(typed) {
  const text = typed.trim().slice(0, MOST.tag);
  const begun = TAGS.filter((tag) => tag.startsWith(text.toLowerCase()));
  return text && begun.length === 1 ? begun[0] : text;
}

/** @type {(tags: string[], tag: string) => string[]} */
export const toggled = (tags, tag) =>
  tags.includes(tag) ? tags.filter((each) => each !== tag) : [...tags, tag].slice(0, MOST.tags);

/**
 * A row without some of what it tells.
 * @template {keyof JudgementRow} K
 * @param {JudgementRow} row
 * @param {K[]} names
 */
export const without = (row, ...names) =>
  /** @type {Omit<JudgementRow, K>} */ (
    Object.fromEntries(Object.entries(row).filter(([name]) => !names.includes(/** @type {K} */ (name))))
  );

/**
 * A row as the server takes it.
 * @param {JudgementRow} row
 */
export const sendable = (row) => without(row, "set", "pair", "isSent");

/**
 * A row of the server as the browser keeps it. pair: of a sealed one, whose sides nobody knows here.
 * @param {Json} told
 * @param {string} set
 * @param {string[]} pair
 * @returns {JudgementRow}
 */
export function keepable(told, set, pair) {
  const known = told.left === undefined ? pair : pairOf(told.left, told.right);
  return /** @type {JudgementRow} */ ({ ...told, set, pair: known, isSent: true });
}

/**
 * The ways that a row prefers or calls equal, as a reader of a list sees them.
 * @param {JudgementRow} row
 */
export function preferredOf(row) {
  if (row.preference === "left") return row.left ?? "left";
  if (row.preference === "right") return row.right ?? "right";
  return row.preference;
}
