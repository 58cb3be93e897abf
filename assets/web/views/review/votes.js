// Votes and notes: stored in the browser by set, counted, and written as files. No DOM.

import { csvOf } from "../../core/files.js";
import { store, stored } from "../../core/storage.js";
import { counted, joined } from "../../core/words.js";
import { isMade, labelOf, setText } from "./sets.js";

export const EQUAL = "equal";
export const BAD = "bad";
const Z = 1.96; // of a 95 % interval

/** @param {string} id */
const keyOf = (id) => `mars-review:${id}`;

// Returns the stored votes of a set. Damaged entries are dropped.
/** @type {(id: string) => Record<string, Vote>} */
export function votesOf(id) {
  try {
    const value = JSON.parse(stored("localStorage", keyOf(id)) || "{}");
    const entries = Object.entries(value).filter(([, vote]) => typeof vote?.vote === "string" && typeof vote.note === "string"); // prettier-ignore
    return Object.fromEntries(entries);
  } catch {
    return {};
  }
}

// Stores the votes of a set. Returns whether the browser stored them.
/** @type {(id: string, votes: Record<string, Vote>) => boolean} */
export const keepVotes = (id, votes) => store("localStorage", keyOf(id), JSON.stringify(votes));

// Returns the votes of both, the later one of an item where both have one.
/** @type {(own: Record<string, Vote>, other: Record<string, Vote>) => Record<string, Vote>} */
export function mergedVotes(own, other) {
  const later = Object.entries(other).filter(([item, { time }]) => !own[item] || time > own[item].time);
  return { ...own, ...Object.fromEntries(later) };
}

// Returns the Wilson score interval of a share, in percent.
/** @type {(num: number, all: number) => number[]} */
export function wilson(num, all) {
  const [share, z2] = [num / all, Z * Z];
  const middle = (share + z2 / (2 * all)) / (1 + z2 / all);
  const half = (Z / (1 + z2 / all)) * Math.sqrt((share * (1 - share)) / all + z2 / (4 * all * all));
  return [Math.max(0, middle - half), Math.min(1, middle + half)].map((end) => Math.round(100 * end));
}

// Returns whether there are several answers, all with the same text.
/** @type {(answers: (ReviewAnswer | null)[]) => boolean} */
export function areSame(answers) {
  const made = answers.filter(isMade);
  return made.length > 1 && made.every((answer) => answer?.text === made[0]?.text);
}

// Returns what a vote counts for: every method with the text of the chosen answer, or EQUAL if all have it.
/** @type {(vote: string, methods: ReviewMethod[], answers: (ReviewAnswer | null)[]) => string[]} */
function countedFor(vote, methods, answers) {
  const chosen = answers[methods.findIndex(({ name }) => name === vote)];
  if (!isMade(chosen)) return [vote];
  if (areSame(answers)) return [EQUAL];
  return methods.flatMap(({ name }, i) => (isMade(answers[i]) && answers[i]?.text === chosen?.text ? [name] : []));
}

// Returns the votes in lines: their number and, with 95 % intervals, the share of each method; "" without votes.
/** @type {(methods: ReviewMethod[], votes: Record<string, Vote>, items: ReviewItem[]) => string} */
export function tally(methods, votes, items) {
  const answers = new Map(items.map((item) => [item.id, item.answers]));
  const cast = Object.entries(votes).flatMap(([id, { vote }]) => (vote ? [countedFor(vote, methods, answers.get(id) ?? [])] : [])); // prettier-ignore
  if (!cast.length) return "";
  const count = (/** @type {string} */ name) => cast.filter((names) => names.includes(name)).length;
  const wins = methods.map((method) => {
    const num = count(method.name);
    const [low, high] = wilson(num, cast.length);
    return `${labelOf(method)}: ${num} (${low} to ${high} %)`;
  });
  const sums = joined(counted(cast.length, "vote"), `${count(EQUAL)} equal`, `${count(BAD)} both bad`);
  return [sums, ...wins].join("\n");
}

// Describes what a file has: its prompts, votes and notes.
/** @type {(numPrompts: number, votes: Record<string, Vote>) => string} */
export function contentOf(numPrompts, votes) {
  const all = Object.values(votes);
  const [numVotes, numNotes] = [all.filter(({ vote }) => vote).length, all.filter(({ note }) => note).length];
  const parts = [numPrompts && counted(numPrompts, "prompt"), counted(numVotes, "vote"), numNotes && counted(numNotes, "note")]; // prettier-ignore
  return new Intl.ListFormat("en").format(parts.filter((part) => part !== 0));
}

// Returns the votes and notes as a table, with the text of each method's answer.
/** @type {(set: ReviewSet, votes: Record<string, Vote>) => string} */
export function votesCsv({ header, items }, votes) {
  const { methods } = header;
  const head = ["id", "prompt", "vote", "note", "time", "blind", ...methods.flatMap(({ name }) => [name, `${name}: settings`])]; // prettier-ignore
  const rows = items.flatMap((item) => {
    const vote = votes[item.id];
    if (!vote) return [];
    const choice = vote.vote === BAD ? "both bad" : vote.vote;
    const answers = methods.flatMap(({ settings }, i) => [item.answers[i]?.text ?? "", settings ? JSON.stringify(settings) : ""]); // prettier-ignore
    return [[item.id, item.prompt, choice, vote.note, vote.time, vote.is_blind ? "yes" : "no", ...answers]];
  });
  return csvOf([head, ...rows]);
}

// Returns the votes and notes as JSON Lines: the header of the set with its methods, then one vote per line.
/** @type {(set: ReviewSet, votes: Record<string, Vote>) => string} */
export const votesJsonl = (set, votes) => setText({ ...set, items: [] }, votes);
