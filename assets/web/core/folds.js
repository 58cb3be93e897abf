// Figures and facts of a lane from its steps. Pure; no DOM.

import { loopsAt, upToLoop } from "./loops.js";
import { FINAL_STOPS } from "./table.js";

/**
 * Returns the token ids of all drafts that wait for verification after a step, whichever drafter proposed them.
 * @param {Step} step
 */
export function draftIds(step) {
  const byMasks = step.proposals.slice(step.count, step.count + step.drafted).map(([id]) => id);
  return [...(step.lookedUp.length ? step.lookedUp : byMasks), ...step.guessed];
}

/**
 * Returns the number of accepted drafts of a step: the emitted tokens whose source is not AR
 * (mars_runtime/runs/annotations.py).
 * @param {Step} step
 */
export const acceptedDrafts = ({ sources }) => sources.filter((source) => source !== "ar").length;

/**
 * Returns the number of passes that each drafter saved compared with one pass per token, counted until the text begins
 * to repeat itself. In each pass, one token saves nothing: AR's own token or, if all tokens are drafts, the last token.
 * @param {Lane} fullLane @returns {Partial<Record<Source, number>>}
 */
export function passesSaved(fullLane) {
  const lane = upToLoop(fullLane);
  /** @type {Partial<Record<Source, number>>} */
  const saved = {};
  /** @type {(source: Source, by: number) => void} */
  const add = (source, by) => {
    saved[source] = (saved[source] ?? 0) + by;
  };
  for (const step of lane.steps) {
    step.sources.forEach((source) => source !== "ar" && add(source, 1));
    // The pass has no token of AR, so its last token saves nothing. In block diffusion a pass may emit no token at all,
    // which costs the masks one pass.
    if (!step.sources.includes("ar")) add(step.sources.at(-1) ?? "masks", -1);
  }
  return saved;
}

/**
 * For block diffusion, returns the state of the current block after the emitted text: for each position the id of the
 * chosen token, or null if the position is still open. Returns [] for other methods and between blocks.
 * @param {Lane} lane @returns {(number | null)[]}
 */
export function takenAhead(lane) {
  const last = lane.steps.at(-1);
  if (!last?.taken || last.stop === "block") return [];
  /** @type {Map<number, number>} */
  const filled = new Map();
  for (let i = lane.steps.length - 1; i >= 0; i -= 1) {
    const { taken, first, proposals, stop } = lane.steps[i];
    if (!taken || (stop === "block" && i < lane.steps.length - 1)) break;
    for (const at of taken) filled.set(first + at, proposals[at][0]);
  }
  const from = lane.tokens.length;
  const open = last.first + last.proposals.length - from;
  return Array.from({ length: Math.max(0, open) }, (_, i) => filled.get(from + i) ?? null);
}

/**
 * Returns the step that chose a token. In block diffusion this may be an earlier step than the one that emitted the
 * token.
 * @param {Lane} lane @param {Token} token
 */
export function takerOf(lane, { step, position }) {
  const index = step.first + position;
  for (let i = step.index; i >= 0 && lane.steps[i].taken; i -= 1)
    if (lane.steps[i].taken?.includes(index - lane.steps[i].first)) return lane.steps[i];
  return step;
}

/** @type {ReadonlySet<string>} */
export const FINAL = new Set(FINAL_STOPS); // stop reasons of a complete text

/**
 * Returns a warning that the text repeats itself, to show next to tokens per pass; empty if the text does not repeat
 * itself.
 * @param {Lane} lane
 */
export const loopRemark = (lane) =>
  loopsAt(lane) < 0 ? "" : `until the text starts to loop at token ${loopsAt(lane)}`;

const STRETCH = 8; // consecutive plain AR steps after which automatic B counts as not drafting

/**
 * Returns whether the latest steps of a lane with automatic B are all plain AR steps, which automatic B chooses when
 * drafts would not save time.
 * @param {Lane} lane
 */
function isPlain({ steps }) {
  const latest = steps.slice(-STRETCH);
  return latest.length === STRETCH && latest.every(({ fed, settings }) => settings.block_size === "auto" && fed === 1);
}

/**
 * Returns a short remark for a lane in which automatic B fed no masks or has stopped drafting; "" for other lanes.
 * @param {Lane} lane
 */
export function idleText(lane) {
  const declined = lane.end ? lane.steps.at(-1)?.declined : null;
  if (declined) {
    const [tokens, cost] = declined.map((value) => value.toFixed(1));
    return `masks would not pay: ${tokens} tokens per pass at ${cost}× cost`;
  }
  if (!isPlain(lane)) return "";
  return lane.end
    ? "stopped drafting: it would not have saved time here"
    : "not drafting now: it would not save time here";
}

/**
 * Wraps a function that computes a figure, so that it counts only the part of a lane before the text begins to repeat
 * itself.
 * @type {(figure: (lane: Lane) => number) => (lane: Lane) => number}
 */
const counting = (figure) => (lane) => figure(upToLoop(lane));

/**
 * Functions that compute a figure of a lane from its passes before the text begins to repeat itself. Times are measured
 * seconds. Rates are NaN before the first step. toFirst: seconds to the first token, including prefill.
 * @type {Record<"tokens" | "forwards" | "seconds" | "perForward" | "perSecond" | "secondsPerForward" | "toFirst", (lane: Lane) => number>}
 */
export const folds = {
  tokens: counting(({ tokens }) => tokens.length),
  forwards: counting(({ steps }) => steps.length),
  seconds: counting(({ seconds }) => seconds),
  perForward: counting(({ tokens, steps }) => tokens.length / steps.length),
  perSecond: counting(({ tokens, seconds }) => tokens.length / seconds),
  secondsPerForward: counting(({ seconds, steps }) => seconds / steps.length),
  toFirst: (lane) => (lane.steps.length && lane.prefill !== null ? lane.prefill + lane.steps[0].seconds : NaN),
};

/** @param {Lane} a @param {Lane} b @param {number} from */
export function divergence(a, b, from) {
  const shared = Math.min(a.tokens.length, b.tokens.length);
  for (let i = from; i < shared; i += 1) if (a.tokens[i].id !== b.tokens[i].id) return i;
  return -1;
}

/** @param {Lane} lane @param {Clock} clock */
export const lengthOf = ({ steps }, clock) => (steps.length ? clock.end(lastOf(steps)) : 0);

/**
 * Returns how many steps of a lane have ended by a time on a clock (binary search; the ends are in ascending order).
 * @param {Lane} lane @param {number} time @param {Clock} clock
 */
export function numUntil(lane, time, clock) {
  let [low, high] = [0, lane.steps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (clock.end(lane.steps[middle]) <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Returns the lane that single-lane charts, figures and the player show: the first one that is not plain AR.
 * @param {{ lanes: Lane[] }} run
 */
export function mainLane(run) {
  return run.lanes.find((lane) => lane.name !== "ar" && !lane.isAr) || run.lanes[0];
}

/**
 * Returns whether a lane shows the original run, next to a branch of this run (views/race/view.js).
 * @param {{ name: string }} lane
 */
export const isFirst = ({ name }) => name === "first";

/** @param {Step[]} steps @param {number} most */
export function thinned(steps, most) {
  const stride = Math.max(1, Math.ceil(steps.length / most));
  return steps.filter((_, i) => i % stride === 0 || i === steps.length - 1);
}

/** @param {Lane} lane @returns {HeaderEvent} */
export function headerOf({ header, name }) {
  if (!header) throw new Error(`The lane ${name} has no header yet.`);
  return header;
}

/** @param {Lane} lane @returns {Settings} */
export function settingsOf({ settings, name }) {
  if (!settings) throw new Error(`The lane ${name} has no settings yet.`);
  return settings;
}

/** @template T @param {readonly T[]} list @returns {T} */
export const lastOf = (list) => list[list.length - 1];
