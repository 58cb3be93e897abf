// The turns of a conversation as a tree: an edited question or another answer becomes a sibling branch; the turns after
// each stay. Pure; no page.

import { divergence, folds, headerOf, isFirst, mainLane } from "../../core/folds.js";
import { loopText } from "../../core/loops.js";
import { store, storedBeforeReload } from "../../core/storage.js";
import { LIMITS } from "../../core/table.js";
import { valueOf } from "../../core/wire.js";
import { counted, whole } from "../../core/words.js";

const MOST_BYTES = 0.75 * LIMITS.body; // earlier turns; the rest of a request is for the prompt and settings
const MOST_KEPT = 60; // runs that can be displayed again
const QUESTION = 32; // estimated tokens of a question

export class Tree {
  constructor() {
    /** @type {Turn[]} */
    this.turns = []; // in the order of the questions
    /** @type {Turn | null} */
    this.first = null; // first turn of the current branch
  }

  /**
   * Adds another answer after `parent` (null for a first question) and makes its branch current.
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
    for (const old of this.turns.filter((each) => each.value).slice(0, -MOST_KEPT)) old.value = "";
    return turn;
  }

  /**
   * Removes a turn without an answer.
   * @param {Turn} turn
   */
  remove(turn) {
    this.turns = this.turns.filter((each) => each !== turn);
    for (const each of this.turns) if (each.fork?.of === turn) each.fork = null;
    const other = this.besides(turn).at(-1) || null;
    if (turn.parent) turn.parent.next = other;
    else this.first = other;
  }

  /**
   * Returns the siblings of a turn, including itself, in the order of the questions.
   * @param {Turn} turn
   */
  besides(turn) {
    return this.turns.filter((each) => each.parent === turn.parent);
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
    const found = [];
    for (let turn = this.first; turn; turn = turn.next) found.push(turn);
    return found;
  }

  get last() {
    return this.path.at(-1) || null;
  }
}

/**
 * Returns the runs tried in place of a turn as trees: runs of the same question, each with its branches. Empty if there
 * are no branches.
 * @param {Turn[]} besides
 * @param {Turn} turn
 * @returns {Tried[]}
 */
export function triedIn(besides, turn) {
  const same = besides.filter(({ prompt }) => prompt === turn.prompt);
  /** @type {(of: Turn | null) => Tried[]} */
  const from = (of) =>
    same.filter(({ fork }) => (fork?.of ?? null) === of).map((each) => ({ turn: each, branches: from(each) }));
  return same.some(({ fork }) => fork) ? from(null) : [];
}

/**
 * Returns a turn and those before it, oldest first.
 * @param {Turn | null} turn
 * @returns {Turn[]}
 */
export const upTo = (turn) => (turn ? [...upTo(turn.parent), turn] : []);

/**
 * Returns what later turns need from a run: ids and text of the answer by lane, including a given beginning.
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
 * Returns the value with which a race view can display the run again.
 * @param {Run} run
 */
export const valueOfRun = (run) => valueOf({ ...run.head, from: 0 }, run.lanes);

/**
 * Returns the answer from which the conversation continues.
 * @param {Told} told
 * @param {boolean} isOwn whether each lane continues from its own; otherwise both continue from AR's, if it ran
 */
export const answerOf = ({ texts }, isOwn) =>
  (isOwn ? (texts.mars ?? texts.ar) : (texts.ar ?? texts.mars)) ?? Object.values(texts)[0];

/**
 * Returns the size of earlier turns in a request, which has them as JSON inside JSON.
 * @param {{ prompt: string, tokens: number[] }[]} turns
 */
const bytesOfPosted = (turns) => new TextEncoder().encode(JSON.stringify(JSON.stringify(turns))).length;

/**
 * Returns the earlier turns to post: one list for all lanes, or one by lane. Turns without an answer are left out, and
 * the oldest ones if a request would be too large.
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
    let kept = all.slice(-LIMITS.turns);
    while (bytesOfPosted(kept) > MOST_BYTES / (isOwn ? lanes.length : 1)) kept = kept.slice(1);
    return kept;
  };
  return isOwn ? Object.fromEntries(lanes.map((lane) => [lane, cut(of(lane))])) : cut(of("ar"));
}

/**
 * Describes how many tokens are left for the next question.
 * @param {Told | null} told the last turn's
 */
export function roomText(told) {
  if (!told?.room) return "";
  const left = Math.max(0, told.room - told.used);
  if (left >= told.most + QUESTION) return `Room for ${counted(left, "more token")} of ${whole(told.room)}.`;
  const rest = left ? `${counted(left, "token")} of ${whole(told.room)} left` : `all ${whole(told.room)} tokens used`;
  return `Nearly full: ${rest}, and an answer may need ${whole(told.most)}. The next question drops the oldest turns.`;
}

const KEY = "mars-conversation";
const MOST_STORED = 2_000_000; // characters of runs that can be displayed again; a tab can store some five million

// Stores the conversation over a reload: written when the page is left, read when the same tab returns. A page that is
// opened by a link starts without it.
//
/**
 * Returns the tree as text. A running answer is stored as it is now; of the runs to display again, the latest that fit.
 * @param {Tree} tree
 */
export function written(tree) {
  const placeOf = (/** @type {Turn | null} */ turn) => (turn ? tree.turns.indexOf(turn) : -1);
  let left = MOST_STORED;
  const values = tree.turns.map((turn) => turn.value).reverse();
  const kept = values.map((value) => ((left -= value.length) >= 0 ? value : "")).reverse();
  const turns = tree.turns.map(({ parent, next, prompt, run, told, fork }, i) => ({
    ...{ prompt, run, told, value: kept[i] },
    ...{ parent: placeOf(parent), next: placeOf(next), fork: fork && { ...fork, of: placeOf(fork.of) } },
  }));
  return JSON.stringify({ first: placeOf(tree.first), turns });
}

/**
 * Parses that text; returns a tree without turns if it is invalid.
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

// The tree of this tab before its reload.
export const restored = () => readTree(storedBeforeReload(KEY));

/** @param {Tree} tree */
export const storeTree = (tree) => store("sessionStorage", KEY, written(tree));
