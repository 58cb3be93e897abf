// What follows from a lane that was read: its figures, who proposed each token, where two texts first differ. Pure.

import { isVerified } from "./methods.js";

import { loopsAt, upToLoop } from "./loops.js";
import { FINAL_STOPS } from "./table.js";

/**
 * The tokens that wait for AR's word after a forward, whoever proposed them.
 * @param {Step} step
 * @returns {number[]}
 */
export function draftIds(step) {
  const own = step.proposals.slice(step.count, step.count + step.drafted).map(([id]) => id);
  return [...(step.lookedUp.length ? step.lookedUp : own), ...step.guessed];
}

/**
 * Who proposed a token that waits for AR's word.
 * @param {Step} step
 * @param {number} place
 * @returns {Source}
 */
export function drafterOf(step, place) {
  if (step.settings.method === "jacobi") return "guesses";
  if (place >= draftIds(step).length - step.guessed.length) return "draft model";
  return step.lookedUp.length ? "look-up" : "masks";
}

/**
 * Who proposed each token of a forward, as `step_sources` of mars_runtime/folds.py says it. A verified token is a draft
 * that AR confirmed, or AR's own; without verification the first is AR's own; block diffusion reads masks alone.
 * @param {Lane} lane
 * @param {Step} step
 * @returns {Source[]}
 */
export function sourcesOf({ steps, tokens }, { index, first, count, pending, settings }) {
  /** @type {(length: number, source: Source) => Source[]} */
  const all = (length, source) => Array.from({ length }, () => source);
  if (settings.method === "block_diffusion") return all(count, "masks");
  if (settings.method === "ar" || !isVerified(settings)) return count ? ["ar", ...all(count - 1, "masks")] : [];
  const before = steps[index - 1];
  const judged = before ? draftIds(before).slice(0, Math.max(0, pending - 1)) : [];
  const found = all(count, "ar");
  for (let i = 0; i < Math.min(count, judged.length) && tokens[first + i].id === judged[i]; i += 1)
    found[i] = drafterOf(before, i);
  return found;
}

/**
 * How many forwards fewer than one per token, by who proposed what saved them, up to where the text begins to repeat
 * itself. Each forward gives one token that is credited to no drafter: AR's own, or its last where drafts gave all of them.
 * @param {Lane} given
 * @returns {Partial<Record<Source, number>>}
 */
export function passesSaved(given) {
  const lane = upToLoop(given);
  /** @type {Partial<Record<Source, number>>} */
  const saved = {};
  /** @type {(source: Source, by: number) => void} */
  const add = (source, by) => {
    saved[source] = (saved[source] ?? 0) + by;
  };
  for (const step of lane.steps) {
    const found = sourcesOf(lane, step);
    found.forEach((source) => source !== "ar" && add(source, 1));
    if (!found.length)
      add("masks", -1); // block diffusion: a forward after which nothing could leave yet
    else if (!found.includes("ar")) add(lastOf(found), -1);
  }
  return saved;
}

/**
 * Block diffusion: what was taken in the block behind the text that has left, null where a place is open still.
 * @param {Lane} lane
 * @returns {(number | null)[]}
 */
export function takenAhead(lane) {
  const last = lane.steps.at(-1);
  if (!last?.taken || last.stop === "block") return [];
  /** @type {Map<number, number>} */
  const found = new Map();
  for (let i = lane.steps.length - 1; i >= 0; i -= 1) {
    const { taken, first, proposals, stop } = lane.steps[i];
    if (!taken || (stop === "block" && i < lane.steps.length - 1)) break;
    for (const at of taken) found.set(first + at, proposals[at][0]);
  }
  const from = lane.tokens.length;
  const open = last.first + last.proposals.length - from;
  return Array.from({ length: Math.max(0, open) }, (_, i) => found.get(from + i) ?? null);
}

/**
 * The forward that took a token: with block diffusion it may have left later.
 * @param {Lane} lane
 * @param {Token} token
 */
export function takerOf(lane, { step, position }) {
  const place = step.first + position;
  for (let i = step.index; i >= 0 && lane.steps[i].taken; i -= 1)
    if (lane.steps[i].taken?.includes(place - lane.steps[i].first)) return lane.steps[i];
  return step;
}

/** @type {ReadonlySet<string>} */
export const FINAL = new Set(FINAL_STOPS); // stops that end a text by itself

/**
 * What has to be said beside tokens per forward; empty where the text does not repeat itself.
 * @param {Lane} lane
 */
export const loopRemark = (lane) =>
  loopsAt(lane) < 0 ? "" : `up to token ${loopsAt(lane)}, where it begins to repeat itself`;

const STRETCH = 8; // forwards after which it is no accident

/**
 * Whether a lane that leaves B to be chosen has taken AR's own steps of late: nothing pays.
 * @param {Lane} lane
 */
function isPlain({ steps }) {
  const latest = steps.slice(-STRETCH);
  return latest.length === STRETCH && latest.every(({ fed, settings }) => settings.block_size === "auto" && fed === 1);
}

/**
 * What such a lane says of itself.
 * @param {Lane} lane
 */
export function idleText(lane) {
  if (!isPlain(lane)) return "";
  return lane.end ? "no drafts at the end: they would not pay here" : "not drafting now: it would not pay here";
}

/**
 * A figure that counts up to where the text begins to repeat itself.
 * @type {(figure: (lane: Lane) => number) => (lane: Lane) => number}
 */
const counting = (figure) => (lane) => figure(upToLoop(lane));

/**
 * Figures of a lane, from measured seconds and up to where its text begins to repeat itself; NaN before its first step.
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

/**
 * Where two lanes first hold different tokens, looking on from `from`; -1 while they agree.
 * @param {Lane} a
 * @param {Lane} b
 * @param {number} from
 */
export function divergence(a, b, from) {
  const shared = Math.min(a.tokens.length, b.tokens.length);
  for (let i = from; i < shared; i += 1) if (a.tokens[i].id !== b.tokens[i].id) return i;
  return -1;
}

/**
 * How far a lane has come on a clock.
 * @param {Lane} lane
 * @param {Clock} clock
 */
export const lengthOf = ({ steps }, clock) => (steps.length ? clock.end(lastOf(steps)) : 0);

/**
 * The other lane's place when the faster one ended, by a clock; null where neither was ahead or the faster one's text
 * repeats itself.
 * @param {Lane[]} lanes
 * @param {Clock} clock
 */
export function photoFinish(lanes, clock) {
  if (lanes.length !== 2) return null;
  const done = lanes.filter((lane) => lane.end && FINAL.has(lane.end.reason));
  const first = done.sort((a, b) => lengthOf(a, clock) - lengthOf(b, clock))[0];
  const other = lanes.find((lane) => lane !== first);
  if (!first || !other || loopsAt(first) >= 0) return null;
  const time = lengthOf(first, clock);
  if (lengthOf(other, clock) <= time) return null;
  const last = other.steps[numUntil(other, time, clock) - 1];
  return { time, first, other, tokens: last ? last.first + last.count : 0 };
}

/**
 * How many steps of a lane have ended by a time of a clock, which never goes back.
 * @param {Lane} lane
 * @param {number} time
 * @param {Clock} clock
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
 * How the texts of two lanes compare. place: of the first token that differs, or -1; isShown: whether both have come to
 * it; isSame: whether both ended alike.
 * @param {Lane[]} lanes
 * @param {number} place
 */
export function compared(lanes, place) {
  const lengths = lanes.map((lane) => lane.tokens.length);
  return {
    place,
    isShown: place >= 0 && Math.min(...lengths) > place,
    isSame: place < 0 && lanes.every((lane) => lane.end) && lengths[0] === lengths[1],
  };
}

/**
 * The lane that the single-lane charts, the figures and the player speak of: the first that is not plain AR.
 * @param {{ lanes: Lane[] }} run
 */
export function mainLane(run) {
  return run.lanes.find((lane) => lane.name !== "ar" && !lane.isAr) || run.lanes[0];
}

/**
 * Whether a lane goes on as a first run did, beside a branch of it (app/live/order.py).
 * @param {{ name: string }} lane
 */
export const isFirst = ({ name }) => name === "first";

/**
 * So many of the steps at most, spread over all of them, and the last.
 * @param {Step[]} steps
 * @param {number} most
 */
export function thinned(steps, most) {
  const stride = Math.max(1, Math.ceil(steps.length / most));
  return steps.filter((_, i) => i % stride === 0 || i === steps.length - 1);
}

/**
 * The header of a lane of which something was read.
 * @param {Lane} lane
 * @returns {HeaderEvent}
 */
export function headerOf({ header, name }) {
  if (!header) throw new Error(`Nothing of ${name} was read yet.`);
  return header;
}

/**
 * The settings that are in force in such a lane.
 * @param {Lane} lane
 * @returns {Settings}
 */
export function settingsOf({ settings, name }) {
  if (!settings) throw new Error(`Nothing of ${name} was read yet.`);
  return settings;
}

/**
 * @template T
 * @param {readonly T[]} list
 * @returns {T}
 */
export const lastOf = (list) => list[list.length - 1];
