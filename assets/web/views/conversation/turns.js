// What the conversation keeps of its turns and sends with the next one. Pure; no DOM.

import { folds, headerOf, mainLane } from "../../core/folds.js";
import { LIMITS } from "../../core/table.js";

const MOST_BYTES = 0.75 * LIMITS.body; // maximum size of the earlier turns in a request

/**
 * Returns the answer from which the conversation continues: AR's, if AR ran. It includes a beginning that was given to
 * the lane.
 * @param {Lane[]} lanes
 * @returns {Answer}
 */
export function answerOf(lanes) {
  const lane = lanes.find(({ isAr }) => isAr) ?? lanes[0];
  const tokens = lane.tokens.filter((token) => !token.isEnd);
  return {
    checkpoint: headerOf(lane).checkpoint,
    ids: [...lane.givenIds(), ...tokens.map(({ id }) => id)],
    text: lane.given + tokens.map(({ text, rest }) => text + (rest || "")).join(""),
    perForward: folds.perForward(mainLane({ lanes })),
  };
}

/**
 * Returns whether a run is the one that was requested for the next turn. before: id of the run that was displayed then.
 * @param {Run | null} run
 * @param {{ prompt: string, before: string } | null} expected
 */
export const isExpected = (run, expected) =>
  Boolean(
    run && expected && run.id !== expected.before && run.lanes.some(({ header }) => header?.prompt === expected.prompt),
  );

/**
 * Returns whether a run has an answer that belongs to no turn, so that a follow-up would not continue it.
 * @param {Run | null} run
 * @param {Turn[]} turns
 * @param {{ prompt: string, before: string } | null} expected
 */
export const isForeign = (run, turns, expected) =>
  Boolean(run?.lanes.some(({ header }) => header)) &&
  !turns.some((turn) => turn.run === run?.id) &&
  !isExpected(run, expected);

/**
 * Returns the earlier turns to send with a request. Leaves out turns without an answer, and the oldest turns if the
 * request, which contains them as JSON within JSON, would be too large.
 * @param {Turn[]} turns
 */
export function historyOf(turns) {
  let latest = turns
    .flatMap(({ prompt, answer }) => (answer?.ids.length ? [{ prompt, tokens: answer.ids }] : []))
    .slice(-LIMITS.turns);
  const bytes = () => new TextEncoder().encode(JSON.stringify(JSON.stringify(latest))).length;
  while (bytes() > MOST_BYTES) latest = latest.slice(1);
  return latest;
}

/**
 * Returns the turns as text, to store over a reload, without the runs, which would be too large.
 * @param {Turn[]} turns
 */
export const written = (turns) => JSON.stringify(turns.map((turn) => ({ ...turn, value: "" })));

/**
 * Parses the text of stored turns; returns [] if the text is invalid.
 * @param {string} text
 * @returns {Turn[]}
 */
export function readTurns(text) {
  try {
    return JSON.parse(text).map((/** @type {Turn} */ turn) => ({ ...turn, prompt: String(turn.prompt) }));
  } catch {
    return [];
  }
}
