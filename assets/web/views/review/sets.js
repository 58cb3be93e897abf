// Reads and writes sets: JSON Lines with a header, prompts with their answers, and votes (docs/review.md). A set is an
// untrusted file. It is read line by line, and everything in it is drawn as text. No DOM.

import { aloneText } from "../../core/bytes.js";
import { hash } from "../../core/colours.js";
import { factsOf } from "../../core/methods.js";
import { FINAL_STOPS, REVIEW } from "../../core/table.js";
import { Lane } from "../../core/trace.js";
import { joined, short } from "../../core/words.js";

const VERSION = 1;
const CHECKS = /** @type {const} */ (["is_same", "is_looped", "is_right"]);

export const NOT_A_SET =
  "This file is not a set of answers. Open a .jsonl file that Review saved, or press New set for a file of prompts.";

export class SetError extends Error {}

/** @type {(isRight: unknown, why: string) => void} */
function check(isRight, why) {
  if (!isRight) throw new SetError(why);
}

/** @param {any} value */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** @type {(value: any, most: number) => boolean} */
const isText = (value, most) => typeof value === "string" && value.length <= most;

/** @param {any} value */
const isWholes = (value) => Array.isArray(value) && value.every((number) => Number.isInteger(number) && number >= 0);

// Reads the lines of one set, which must come in order.
export class SetReader {
  /** @type {SetHeader | null} */
  header = null;
  /** @type {ReviewItem[]} */
  items = [];
  /** @type {Record<string, Vote>} */
  votes = {};
  ids = new Set();
  num = 0;

  // Reads a line. Throws a SetError, whose message is one sentence.
  /** @param {string} line */
  push(line) {
    this.num += 1;
    if (!line.trim()) return;
    let why = this.header ? "it is not valid JSON" : NOT_A_SET;
    try {
      check(line.length <= REVIEW.line, `it is longer than ${REVIEW.line / 1e6} MB`);
      const value = JSON.parse(line);
      check(isObject(value), this.header ? "it is not an object" : NOT_A_SET);
      if (!this.header) this.header = headerOf(value);
      else if (value.type === "vote") this.addVote(value);
      else this.add(itemOf(value, this.header.methods.length));
    } catch (error) {
      if (error instanceof SetError) why = error.message;
      throw new SetError(why === NOT_A_SET ? why : `Line ${this.num} is not part of a set: ${why}.`);
    }
  }

  /** @param {ReviewItem} item */
  add(item) {
    check(!this.ids.has(item.id), `the id “${item.id}” occurs twice`);
    check(this.items.length < REVIEW.items, `a set has at most ${REVIEW.items} prompts`);
    this.ids.add(item.id);
    this.items.push(item);
  }

  /** @param {Record<string, any>} value */
  addVote({ item, vote = "", note = "", time = "", is_blind = false }) {
    check(isText(item, REVIEW.name) && isText(vote, REVIEW.name) && isText(time, 40), "its vote is damaged");
    check(isText(note, REVIEW.note), `its note is longer than ${REVIEW.note} characters`);
    this.votes[item] = { vote, note, time, is_blind: is_blind === true };
  }

  /** @returns {ReviewSet} */
  end() {
    if (!this.header) throw new SetError(NOT_A_SET);
    return { id: this.header.id, header: this.header, items: this.items };
  }
}

/** @type {(value: Record<string, any>) => SetHeader} */
function headerOf({ type, version, id, name, methods, made = {} }) {
  check(type === "set", NOT_A_SET);
  check(version === VERSION, `the version of a set must be ${VERSION}`);
  check(isText(id, REVIEW.name) && id && isText(name, REVIEW.name), "its name or id is missing or too long");
  check(Array.isArray(methods) && methods.length && methods.length <= REVIEW.methods, `a set has 1 to ${REVIEW.methods} methods`); // prettier-ignore
  for (const method of methods) {
    check(isObject(method) && isText(method.name, REVIEW.name), "a method has no name");
    check(method.settings === null || isObject(method.settings), "the settings of a method are damaged");
    check(isText(method.checkpoint, 300), "a method has no checkpoint");
  }
  const names = new Set(methods.map((/** @type {ReviewMethod} */ method) => method.name));
  check(names.size === methods.length, "two methods have the same name");
  check(isObject(made), "its provenance is damaged");
  return { id, name, methods, made };
}

/** @type {(value: Record<string, any>, numMethods: number) => ReviewItem} */
function itemOf(value, numMethods) {
  check(value.type === "item", "its type must be item or vote");
  const { id, prompt, system = "", category = "", reference = "", turns = [], answers } = value;
  check(isText(id, REVIEW.name) && id, "its id is missing or too long");
  check(isText(prompt, REVIEW.text) && prompt.trim(), "its prompt is missing, empty or too long");
  for (const text of [system, category, reference]) check(isText(text, REVIEW.text), "one of its texts is damaged");
  check(Array.isArray(turns) && turns.every((turn) => Array.isArray(turn) && turn.length === 2 && turn.every((text) => isText(text, REVIEW.text))), "its turns are damaged"); // prettier-ignore
  check(Array.isArray(answers) && answers.length === numMethods, `it needs ${numMethods} answers`);
  return { id, prompt, system, category, reference, turns, answers: answers.map(answerOf) };
}

/** @type {(value: any) => ReviewAnswer | null} */
function answerOf(value) {
  if (value === null) return null;
  check(isObject(value) && isText(value.text, REVIEW.text), "the text of an answer is missing or too long");
  const { text, passes = [], unlike_ar = [], trace = [], fault = "" } = value;
  check(isWholes(passes) && isWholes(unlike_ar), "passes or unlike_ar is not a list of whole numbers");
  check(Array.isArray(trace) && trace.every(isObject), "the trace of an answer is damaged");
  check(isText(fault, REVIEW.note), "the fault of an answer is damaged");
  const [is_same = null, is_looped = null, is_right = null] = CHECKS.map((name) => {
    check([true, false, null, undefined].includes(value[name]), `${name} must be true, false or null`);
    return value[name];
  });
  return { text, passes, unlike_ar, is_same, is_looped, is_right, fault, trace };
}

// Yields the lines of a stream of UTF-8 text. Throws a TypeError for other bytes, and a SetError for a very long line.
/** @param {ReadableStream<Uint8Array>} stream */
export async function* linesOf(stream) {
  const decoder = new TextDecoderStream("utf-8", { fatal: true });
  const reader = stream.pipeThrough(/** @type {any} */ (decoder)).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      const parts = `${rest}${value ?? ""}`.split("\n");
      rest = done ? "" : (parts.pop() ?? "");
      yield* parts;
      if (rest.length > REVIEW.line) throw new SetError(`A line is longer than ${REVIEW.line / 1e6} MB.`);
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Reads a set. grown: called with the reader after some lines, so that a long file is drawn while it arrives.
/** @type {(stream: ReadableStream<Uint8Array>, grown?: (reader: SetReader) => void) => Promise<{ set: ReviewSet, votes: Record<string, Vote> }>} */
export async function readSet(stream, grown = () => {}) {
  const reader = new SetReader();
  try {
    for await (const line of linesOf(stream)) {
      reader.push(line);
      if (reader.items.length % 10 === 1) grown(reader);
    }
  } catch (error) {
    throw error instanceof TypeError ? new SetError(NOT_A_SET) : error;
  }
  return { set: reader.end(), votes: reader.votes };
}

// Returns a set as the text of a file, with its votes. Without its items, it is a file of votes.
/** @type {(set: ReviewSet, votes: Record<string, Vote>) => string} */
export function setText({ header, items }, votes) {
  const cast = Object.entries(votes).map(([item, vote]) => ({ type: "vote", item, ...vote }));
  const lines = [{ type: "set", version: VERSION, ...header }, ...items.map((item) => ({ type: "item", ...item })), ...cast]; // prettier-ignore
  return lines.map((line) => `${JSON.stringify(line)}\n`).join("");
}

/** @param {ReviewMethod} method */
export function labelOf({ name, settings }) {
  if (!settings) return name;
  const { tau, block_size: size, lossless, lookup } = settings;
  const facts = factsOf(settings);
  const hasTau = facts.obeys.includes("tau") && Number.isFinite(tau);
  if (!hasTau) return facts.title;
  return joined(facts.title, lossless ? "lossless" : "unverified", `τ ${short(tau)}`, `B ${size}`, lookup && "lookup");
}

/** @type {WeakMap<ReviewAnswer, Lane | null>} */
const lanes = new WeakMap();

// Returns the lane of an answer; null without a trace, or if its trace is damaged.
/** @type {(answer: ReviewAnswer, name: string, title: string) => Lane | null} */
export function laneOf(answer, name, title) {
  let lane = lanes.get(answer);
  if (lane !== undefined) return lane;
  try {
    lane = answer.trace.length ? Lane.of(answer.trace.map((event) => JSON.stringify(event)), { lane: name, title }) : null; // prettier-ignore
    if (lane && !lane.steps.length) lane = null;
    if (lane) lane.verdict = answer.is_right;
  } catch {
    lane = null;
  }
  lanes.set(answer, lane);
  return lane;
}

// Returns an answer with its checks from a lane.
/** @type {(lane: Lane) => ReviewAnswer} */
export function answerFrom(lane) {
  const text = lane.tokens.map((token) => token.text + (token.rest ?? "")).join("");
  const isJoint = lane.tokens.map(({ step }) => step.count > 1);
  const unlike_ar = lane.tokens.flatMap(({ check, id }, i) => (isJoint[i] && check && check.id !== id ? [i] : []));
  const passes = lane.steps.map(({ count }) => count);
  const trace = lane.lines.map((line) => JSON.parse(line));
  return { text, passes, unlike_ar, is_same: null, is_looped: lane.loop !== null, is_right: lane.verdict, fault: "", trace }; // prettier-ignore
}

/** @param {ReviewMethod} method */
export const isReference = ({ settings }) => Boolean(settings && factsOf(settings).isReference);

// Compares the answers of an item with plain AR's.
/** @type {(item: ReviewItem, methods: ReviewMethod[]) => void} */
export function compareWithAr(item, methods) {
  const plain = item.answers[methods.findIndex(isReference)];
  for (const answer of item.answers) if (answer && plain && !plain.fault) answer.is_same = answer.text === plain.text;
}

/** @param {ReviewAnswer | null} answer */
export const isMade = (answer) => Boolean(answer && !answer.fault);

/**
 * Returns the place at which a text first differs from one of the others, so that answers with the same text have the
 * same mark; the length of the text if it is the start of all others.
 * @param {string} text @param {(ReviewAnswer | null)[]} others
 */
export function firstUnlike(text, others) {
  const places = others.filter(isMade).map((other) => {
    let at = 0;
    while (at < text.length && text[at] === other?.text[at]) at += 1;
    return at;
  });
  return Math.min(text.length, ...places);
}

/** @type {Record<string, { mark: string, text: string, is: (item: ReviewItem, vote?: Vote) => boolean }>} */
export const MARKS = {
  differs: { mark: "≠", text: "differs", is: ({ answers }) => new Set(answers.filter(isMade).map((answer) => answer?.text)).size > 1 }, // prettier-ignore
  unlike: { mark: "▲", text: "AR differs in a pass of several tokens", is: ({ answers }) => answers.some((answer) => answer?.unlike_ar.length) }, // prettier-ignore
  loop: { mark: "↻", text: "loop", is: ({ answers }) => answers.some((answer) => answer?.is_looped) },
  wrong: { mark: "✗", text: "wrong", is: ({ answers }) => answers.some((answer) => answer?.is_right === false) },
  note: { mark: "✎", text: "note", is: (_, vote) => Boolean(vote?.note) },
  vote: { mark: "✓", text: "voted", is: (_, vote) => Boolean(vote?.vote) },
  unvoted: { mark: "", text: "not voted", is: (_, vote) => !vote?.vote },
};

// Returns the items that a filter (a name in MARKS) and a search text select.
/** @type {(items: ReviewItem[], votes: Record<string, Vote>, filter: string, search: string) => ReviewItem[]} */
export function selected(items, votes, filter, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return items.filter((item) => {
    const vote = votes[item.id];
    if (MARKS[filter] && !MARKS[filter].is(item, vote)) return false;
    if (!words.length) return true;
    const text = [item.id, item.prompt, item.category, vote?.note, ...item.answers.map((answer) => answer?.text)].join("\n").toLowerCase(); // prettier-ignore
    return words.every((word) => text.includes(word));
  });
}

// Returns the methods to show, at most three; while they are hidden, in an order that depends on the item. chosen:
// empty for the first three.
/** @type {(set: ReviewSet, item: ReviewItem, chosen: Set<number>, isBlind: boolean) => number[]} */
export function columnsOf({ id, header }, item, chosen, isBlind) {
  const all = header.methods.map((_, method) => method).filter((method) => item.answers[method]);
  const some = chosen.size ? all.filter((method) => chosen.has(method)) : all;
  const shown = (some.length ? some : all).slice(0, 3);
  const key = (/** @type {number} */ method) => hash(`${id}\n${item.id}\n${header.methods[method].name}`);
  return isBlind ? shown.sort((a, b) => (key(a) < key(b) ? -1 : 1)) : shown;
}

// Adds a lane of Live to a set of pinned runs: to the item with its prompt and to the method with its settings, which
// are added if they are missing. Returns whether the set is changed.
/** @type {(set: ReviewSet, lane: Lane) => boolean} */
export function pinLane({ header, items }, lane) {
  const { header: given, settings } = lane;
  if (!given || !settings) return false;
  const turns = (given.history ?? []).flatMap(({ prompt, tokens }) => [["user", prompt], ["assistant", tokens.map((id) => aloneText(lane.bytes(id))).join("")]]); // prettier-ignore
  const about = JSON.stringify([given.prompt, given.system, given.prompt_ids]);
  let item = items.find(({ key }) => key === about);
  if (!item) {
    const system = given.system ?? "";
    item = { id: String(items.length + 1), key: about, prompt: given.prompt, system, category: "", reference: "", turns, answers: header.methods.map(() => null) }; // prettier-ignore
    items.push(item);
  }
  const key = JSON.stringify([given.checkpoint, settings]);
  let method = header.methods.findIndex((other) => JSON.stringify([other.checkpoint, other.settings]) === key);
  if (method < 0) {
    if (header.methods.length === REVIEW.methods) return false;
    const label = labelOf({ name: "", checkpoint: given.checkpoint, settings }).slice(0, REVIEW.name - 5);
    const isTaken = header.methods.some(({ name }) => name === label);
    method = header.methods.length;
    header.methods.push({ name: isTaken ? `${label} (${method + 1})` : label, checkpoint: given.checkpoint, settings });
    for (const other of items) other.answers.push(null);
  }
  item.answers[method] = answerFrom(lane);
  compareWithAr(item, header.methods);
  return true;
}

// Returns the answer of a finished run as trace lines, or one with the reason why there is none.
/** @type {(lines: string[]) => ReviewAnswer} */
export function answerOfLines(lines) {
  const lane = Lane.of(lines, { lane: "made", title: "" });
  const { end } = lane;
  if (!end || !FINAL_STOPS.includes(end.reason)) return noAnswer(end?.message || "The run ended early.");
  return answerFrom(lane);
}

/** @type {(fault: string) => ReviewAnswer} */
export const noAnswer = (fault) => ({ text: "", passes: [], unlike_ar: [], is_same: null, is_looped: null, is_right: null, fault, trace: [] }); // prettier-ignore
