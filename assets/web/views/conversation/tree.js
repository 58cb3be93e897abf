// The turns of a conversation as a tree: an edited question or another answer becomes a sibling of its turn, and each
// sibling keeps the turns that follow it. Pure; no DOM.

import { divergence, folds, headerOf, isFirst, mainLane } from "../../core/folds.js";
import { loopText } from "../../core/loops.js";
import { store, storedBeforeReload } from "../../core/storage.js";
import { LIMITS } from "../../core/table.js";
import { valueOf } from "../../core/wire.js";
import { counted, whole } from "../../core/words.js";

const MOST_BYTES = 0.75 * LIMITS.body; // maximum size of the earlier turns in a request
const MOST_KEPT = 60; // maximum number of runs that can be displayed again
const QUESTION = 32; // estimated number of tokens in a question

export class Tree {
  constructor() {
    /** @type {Turn[]} */
    this.turns = []; // all turns, in the order in which they were asked
    /** @type {Turn | null} */
    this.first = null; // first turn of the current branch
  }

  /**
   * Adds a turn after `parent` (null for a first question) and makes its branch current.
   * @param {Turn | null} parent
   * @param {string} prompt
   * @param {string} run
   * @param {Fork | null} [fork]
   */
  add(parent, prompt, run, fork = null) {
    /** @type {Turn} */
    const turn = { parent, next: null, prompt, run, isOver: false, value: "", told: null, fork };
    this.turns.push(turn);
    this.choose(turn);
    for (const old of this.turns.filter(({ value }) => value).slice(0, -MOST_KEPT)) old.value = "";
    return turn;
  }

  /**
   * Removes a turn that has no answer.
   * @param {Turn} turn
   */
  remove(turn) {
    this.turns = this.turns.filter((known) => known !== turn);
    for (const known of this.turns) if (known.fork?.of === turn) known.fork = null;
    const other = this.siblings(turn).at(-1) || null;
    if (turn.parent) turn.parent.next = other;
    else this.first = other;
  }

  /**
   * Returns the siblings of a turn, including the turn itself, in the order in which they were asked.
   * @param {Turn} turn
   */
  siblings(turn) {
    return this.turns.filter(({ parent }) => parent === turn.parent);
  }

  /**
   * Makes the branch of a turn current.
   * @param {Turn} turn
   */
  choose(turn) {
    if (turn.parent) {
      turn.parent.next = turn;
      this.choose(turn.parent);
    } else this.first = turn;
  }

  // The current branch, oldest turn first.
  get path() {
    const path = [];
    for (let turn = this.first; turn; turn = turn.next) path.push(turn);
    return path;
  }

  get last() {
    return this.path.at(-1) || null;
  }
}

/**
 * Returns, as trees, the runs that answer a turn's question: each run with the branches that start from its tokens.
 * Returns [] if no run has a branch.
 * @param {Turn[]} siblings
 * @param {Turn} turn
 * @returns {Tried[]}
 */
export function triedIn(siblings, turn) {
  const same = siblings.filter(({ prompt }) => prompt === turn.prompt);
  /** @type {(of: Turn | null) => Tried[]} */
  const from = (of) =>
    same.filter(({ fork }) => (fork?.of ?? null) === of).map((tried) => ({ turn: tried, branches: from(tried) }));
  return same.some(({ fork }) => fork) ? from(null) : [];
}

/**
 * Returns a turn and the turns before it, oldest first.
 * @param {Turn | null} turn
 * @returns {Turn[]}
 */
export const upTo = (turn) => (turn ? [...upTo(turn.parent), turn] : []);

/**
 * Returns what the conversation stores about a run: the answer of each lane as ids and text, including a beginning that
 * was given to the lane, and the figures that the turn's row shows.
 * @param {Run} run
 * @returns {Told}
 */
export function toldOf(run) {
  const lanes = run.lanes.filter((lane) => lane.header && !isFirst(lane));
  const main = mainLane({ lanes });
  const header = headerOf(main);
  const answers = lanes.map((lane) => {
    const tokens = lane.tokens.filter((token) => !token.isEnd);
    const text = tokens.map((token) => token.text + (token.rest || "")).join("");
    return {
      name: lane.name,
      ids: [...lane.givenIds(), ...tokens.map((token) => token.id)],
      text: lane.given + text,
      used: headerOf(lane).prompt_ids.length + tokens.length,
    };
  });
  return {
    checkpoint: header.checkpoint,
    ids: Object.fromEntries(answers.map(({ name, ids }) => [name, ids])),
    texts: Object.fromEntries(answers.map(({ name, text }) => [name, text])),
    perForward: folds.perForward(main),
    loop: loopText([main]),
    tokens: folds.tokens(main),
    forwards: folds.forwards(main),
    differs: lanes.length === 2 && divergence(lanes[0], lanes[1], 0) >= 0,
    used: Math.max(...answers.map(({ used }) => used)),
    room: header.room || 0,
    most: header.settings.max_new_tokens + (header.num_given || 0),
  };
}

/**
 * Returns a run as a value (core/wire.js), from which a race view can display the run again.
 * @param {Run} run
 */
export const valueOfRun = (run) => valueOf({ ...run.head, from: 0 }, run.lanes);

/**
 * Returns the answer from which the conversation continues.
 * @param {Told} told
 * @param {boolean} isOwn whether each lane continues from its own answer; otherwise all continue from AR's, if AR ran
 */
export const answerOf = ({ texts }, isOwn) =>
  (isOwn ? (texts.mars ?? texts.ar) : (texts.ar ?? texts.mars)) ?? Object.values(texts)[0];

/**
 * Returns the size in bytes of earlier turns in a request, which contains them as JSON within JSON.
 * @param {{ prompt: string, tokens: number[] }[]} turns
 */
const bytesOfPosted = (turns) => new TextEncoder().encode(JSON.stringify(JSON.stringify(turns))).length;

/**
 * Returns the earlier turns to send with a request: one list for all lanes or, if isOwn, one list per lane. Leaves out
 * turns without an answer, and the oldest turns if the request would be too large.
 * @param {Turn[]} turns
 * @param {boolean} isOwn
 */
export function historyOf(turns, isOwn) {
  const lanes = [...new Set(["mars", "ar", ...turns.flatMap(({ told }) => Object.keys(told?.ids || {}))])];
  /** @param {string} lane */
  const of = (lane) =>
    turns.flatMap(({ prompt, told }) => {
      const tokens = told && (told.ids[lane] || Object.values(told.ids)[0]);
      return tokens?.length ? [{ prompt, tokens }] : [];
    });
  /** @param {{ prompt: string, tokens: number[] }[]} all */
  const cut = (all) => {
    let latest = all.slice(-LIMITS.turns);
    while (bytesOfPosted(latest) > MOST_BYTES / (isOwn ? lanes.length : 1)) latest = latest.slice(1);
    return latest;
  };
  return isOwn ? Object.fromEntries(lanes.map((lane) => [lane, cut(of(lane))])) : cut(of("ar"));
}

/**
 * Describes how many tokens the context has left for further turns; "" if that is unknown.
 * @param {Told | null} told what is stored about the last turn
 */
export function roomText(told) {
  if (!told?.room) return "";
  const left = Math.max(0, told.room - told.used);
  if (left >= told.most + QUESTION) return `${counted(left, "token")} of ${whole(told.room)} left.`;
  const state = left ? `${counted(left, "token")} of ${whole(told.room)} left` : `all ${whole(told.room)} tokens used`;
  return `Nearly full: ${state}, and an answer may need ${whole(told.most)}. The next question drops the oldest turns.`;
}

const KEY = "mars-conversation";
const MOST_STORED = 2_000_000; // maximum characters of stored runs; browsers store about five million per tab

/**
 * Returns the tree as text, which is stored when the visitor leaves the page and read when the same tab reloads it. An
 * answer in progress is stored in its current state. Whole runs, which can be displayed again, are stored from the
 * latest backwards as long as they fit.
 * @param {Tree} tree
 */
export function written(tree) {
  const placeOf = (/** @type {Turn | null} */ turn) => (turn ? tree.turns.indexOf(turn) : -1);
  let left = MOST_STORED;
  const values = tree.turns.map((turn) => turn.value).reverse();
  const stored = values.map((value) => ((left -= value.length) >= 0 ? value : "")).reverse();
  const turns = tree.turns.map(({ parent, next, prompt, run, told, fork }, i) => ({
    ...{ prompt, run, told, value: stored[i] },
    ...{ parent: placeOf(parent), next: placeOf(next), fork: fork && { ...fork, of: placeOf(fork.of) } },
  }));
  return JSON.stringify({ first: placeOf(tree.first), turns });
}

/**
 * Parses the text of a stored tree; returns a tree without turns if the text is invalid.
 * @param {string} text
 */
export function readTree(text) {
  const tree = new Tree();
  try {
    const { first, turns } = /** @type {{ first: number, turns: StoredTurn[] }} */ (JSON.parse(text));
    tree.turns = turns.map(({ prompt, run, told, value }) => ({
      ...{ parent: null, next: null, isOver: true },
      ...{ prompt: String(prompt), run: String(run), value: String(value), told, fork: null },
    }));
    const at = (/** @type {number} */ place) => tree.turns[place] || null;
    tree.turns.forEach((turn, i) => {
      const { parent, next, fork } = turns[i];
      const of = fork ? at(fork.of) : null;
      Object.assign(turn, { parent: at(parent), next: at(next), fork: of && { ...fork, of } });
    });
    tree.first = at(first);
    return tree;
  } catch {
    return new Tree();
  }
}

// Returns the tree that this browser tab had before the page was reloaded.
export const restored = () => readTree(storedBeforeReload(KEY));

/** @param {Tree} tree */
export const storeTree = (tree) => store("sessionStorage", KEY, written(tree));
