// What the conversation stores about its turns, what it sends with the next question, and its storage over a reload.

import { divergence, folds, headerOf, isFirst, mainLane } from "../../core/folds.js";
import { loopText } from "../../core/loops.js";
import { store, storedBeforeReload } from "../../core/storage.js";
import { LIMITS } from "../../core/table.js";
import { valueOf } from "../../core/wire.js";
import { counted, whole } from "../../core/words.js";

const MOST_BYTES = 0.75 * LIMITS.body; // maximum size of the earlier turns in a request
const QUESTION = 32; // estimated number of tokens in a question

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
 * Returns the turns as text, which is stored when the visitor leaves the page and read when the same tab reloads it. An
 * answer in progress is stored in its current state. Whole runs, which can be displayed again, are stored from the
 * latest backwards as long as they fit.
 * @param {Turn[]} turns
 */
export function written(turns) {
  let left = MOST_STORED;
  const values = turns.map((turn) => turn.value).reverse();
  const stored = values.map((value) => ((left -= value.length) >= 0 ? value : "")).reverse();
  return JSON.stringify(turns.map(({ prompt, run, told }, i) => ({ prompt, run, told, value: stored[i] })));
}

/**
 * Parses the text of stored turns; returns [] if the text is invalid.
 * @param {string} text
 * @returns {Turn[]}
 */
export function readTurns(text) {
  try {
    return /** @type {Turn[]} */ (JSON.parse(text)).map(({ prompt, run, told, value }) => ({
      ...{ prompt: String(prompt), run: String(run), value: String(value), told, isOver: true },
    }));
  } catch {
    return [];
  }
}

// Returns the turns that this browser tab had before the page was reloaded.
export const restored = () => readTurns(storedBeforeReload(KEY));

/** @param {Turn[]} turns */
export const storeTurns = (turns) => store("sessionStorage", KEY, written(turns));
