// Aligns two texts word by word, and splits a text into pieces with a uniform style: no piece extends across the border
// of a pass, of a difference, or of a token that AR would not have chosen. Pure; no DOM.

import { aligned } from "../../folds/diff.js";

/**
 * @param {string} text
 * @returns {ReviewWord[]}
 */
export const wordsOf = (text) =>
  [...text.matchAll(/\S+/g)].map((match) => ({
    text: match[0],
    from: match.index,
    to: match.index + match[0].length,
  }));

/**
 * Returns the differences between two texts, in order. A difference is called "doubled" if one text repeats words that
 * the other text has only once.
 * @param {ReviewWord[]} first
 * @param {ReviewWord[]} second
 * @returns {ReviewPlace[]}
 */
export function placesOf(first, second) {
  /** @type {ReviewPlace[]} */
  const places = [];
  let isOpen = false;
  const segments = aligned(
    first.map(({ text }) => text),
    second.map(({ text }) => text),
  );
  for (const { kind, a, b, num } of segments) {
    if (kind === "both") {
      isOpen = false;
      continue;
    }
    if (!isOpen) places.push({ kind: "different", a, numA: 0, b, numB: 0 });
    const place = places[places.length - 1];
    if (kind === "first") place.numA += num;
    else place.numB += num;
    isOpen = true;
  }
  for (const place of places) place.kind = kindOf(place, first, second);
  return places;
}

/**
 * @param {ReviewPlace} place
 * @param {ReviewWord[]} first
 * @param {ReviewWord[]} second
 */
function kindOf({ a, numA, b, numB }, first, second) {
  if (numA && numB) return "different";
  const [words, at, num] = numA ? [first, a, numA] : [second, b, numB];
  /** @type {(from: number, other: number) => boolean} */
  const isAlike = (from, other) =>
    other >= 0 &&
    Array.from({ length: num }, (_, i) => words[from + i]?.text === words[other + i]?.text).every(Boolean);
  if (isAlike(at, at - num) || isAlike(at, at + num)) return "doubled";
  return numA ? "missing" : "added";
}

/**
 * Splits a text into pieces with a uniform style. The pieces joined together are the text again.
 * @param {string} text
 * @param {Pick<ReviewAnswer, "pieces" | "groups" | "otherwise"> | null} answer null if the text's trace is not shown
 * @param {ReviewWord[]} words
 * @param {{ from: number, num: number }[]} places the words of each difference: index of the first one, and their number
 * @returns {ReviewRun[]}
 */
export function runsOf(text, answer, words, places) {
  const cuts = new Set([0, text.length]);
  /** @type {Map<number, number>} */
  const gaps = new Map();
  /** @type {{ from: number, to: number, place: number }[]} */
  const spans = [];
  places.forEach(({ from, num }, place) => {
    if (num) spans.push({ from: words[from].from, to: words[from + num - 1].to, place });
    else gaps.set(from < words.length ? words[from].from : text.length, place);
  });
  for (const { from, to } of spans) cuts.add(from).add(to);
  for (const at of gaps.keys()) cuts.add(at);
  const tokens = answer ? tokensOf(answer) : [];
  for (const { to } of tokens) cuts.add(to);
  const ends = [...cuts].sort((a, b) => a - b);
  let [token, span] = [0, 0];
  /** @type {ReviewRun[]} */
  const runs = [];
  for (let i = 0; i + 1 < ends.length; i += 1) {
    const [from, to] = [ends[i], ends[i + 1]];
    while (token < tokens.length && tokens[token].to <= from) token += 1;
    while (span < spans.length && spans[span].to <= from) span += 1;
    const place = span < spans.length && spans[span].from <= from ? spans[span].place : -1;
    const { group, size, otherwise } = tokens[token] || { group: -1, size: 1, otherwise: null };
    add(runs, { text: text.slice(from, to), group, size, place, gap: gaps.get(from) ?? -1, otherwise });
  }
  const last = gaps.get(text.length);
  if (last !== undefined) runs.push({ text: "", group: -1, size: 1, place: -1, gap: last, otherwise: null });
  return runs;
}

/**
 * @param {ReviewRun[]} runs
 * @param {ReviewRun} run
 */
function add(runs, run) {
  const last = runs.at(-1);
  const isAlike =
    last && last.group === run.group && last.place === run.place && last.otherwise === run.otherwise && run.gap < 0;
  if (isAlike && run.otherwise === null) last.text += run.text;
  else runs.push(run);
}

/** @param {Pick<ReviewAnswer, "pieces" | "groups" | "otherwise">} answer */
function tokensOf({ pieces, groups, otherwise }) {
  const tokens = [];
  let [group, left, to] = [0, groups[0] ?? Infinity, 0];
  for (let i = 0; i < pieces.length; i += 1) {
    while (!left) {
      group += 1;
      left = groups[group] ?? Infinity;
    }
    left -= 1;
    to += pieces[i].length;
    tokens.push({ to, group, size: groups[group] ?? 1, otherwise: otherwise[String(i)] ?? null });
  }
  return tokens;
}

/**
 * Returns the passes of an answer for its strip: each pass's number of tokens, and whether AR would have chosen another
 * token for any of them.
 * @param {Pick<ReviewAnswer, "groups" | "otherwise">} answer
 */
export function stripOf({ groups, otherwise }) {
  const indices = Object.keys(otherwise).map(Number);
  let first = 0;
  return groups.map((size) => {
    const isOtherwise = indices.some((at) => at >= first && at < first + size);
    first += size;
    return { size, isOtherwise };
  });
}
