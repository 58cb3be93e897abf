// Where a text begins to repeat itself, and the part of a run before it. Pure.
//
// The same function as mars_runtime/loops.py, with the same constants. Both are tested on the cases in
// tests/web/loops.json.

import { LOOPS } from "./table.js";
import { whole } from "./words.js";

/**
 * Number of tokens that must repeat those one period before to count as a loop.
 * @param {number} period
 */
export const numRepeated = (period) => Math.max(LOOPS.minRepeated, period + Math.floor(period / 2));

/**
 * Returns the first evident loop among the first tokens of a text. kept: tokens up to the end of the first copy of what
 * repeats. end: tokens up to the one at which the loop became evident.
 * @param {number[]} ids
 * @param {number} [first]
 * @returns {{ kept: number, end: number } | null}
 */
export function findLoop(ids, first = 0) {
  for (let end = first + 1; end <= ids.length; end += 1) {
    let kept = repeatedFrom(ids, end);
    if (kept < 0 && end % LOOPS.every === 0) {
      kept = nearlyFrom(ids, end);
      if (kept < 0) kept = phrasesFrom(ids, end);
    }
    if (kept >= 0) return { kept, end };
  }
  return null;
}

/**
 * Returns the index from which the tokens repeat those one period before them; -1 if they do not.
 * @param {number[]} ids
 * @param {number} end
 */
function repeatedFrom(ids, end) {
  for (let period = 1; period <= Math.min(LOOPS.maxPeriod, end >> 1); period += 1) {
    const kept = end - numRepeated(period);
    if (kept >= period && isRepeated(ids, kept, end, period)) return kept;
  }
  return -1;
}

/**
 * @param {number[]} ids
 * @param {number} from
 * @param {number} to
 * @param {number} period
 */
function isRepeated(ids, from, to, period) {
  for (let i = to - 1; i >= from; i -= 1) if (ids[i] !== ids[i - period]) return false;
  return true;
}

/**
 * Returns the index from which nearly all tokens repeat those one period before; -1 if they do not.
 * @param {number[]} ids
 * @param {number} end
 */
function nearlyFrom(ids, end) {
  for (const { percent, atLeast, halves, longest } of LOOPS.nearly) {
    for (let period = 1; period <= longest; period += 1) {
      const lookedAt = Math.max(atLeast, Math.floor((period * halves) / 2));
      if (lookedAt + period > end) continue;
      let [repeated, kept] = [0, end];
      for (let i = end - 1; i >= end - lookedAt; i -= 1) {
        if (ids[i] !== ids[i - period]) continue;
        repeated += 1;
        kept = i;
      }
      if (repeated * 100 >= percent * lookedAt) return kept;
    }
  }
  return -1;
}

/**
 * Returns the index from which nearly all phrases occurred before; -1 if they did not.
 * @param {number[]} ids
 * @param {number} end
 */
function phrasesFrom(ids, end) {
  const { length, among, atLeast, kinds } = LOOPS.phrases;
  if (end < among || new Set(ids.slice(end - among, end)).size > kinds) return -1;
  const seen = new Set();
  const repeats = [];
  for (let first = Math.max(0, end - LOOPS.reach); first + length <= end; first += 1) {
    const phrase = ids.slice(first, first + length).join();
    if (seen.has(phrase) && first + length > end - among) repeats.push(first);
    seen.add(phrase);
  }
  return repeats.length >= atLeast ? repeats[0] : -1;
}

/** @type {WeakMap<Lane, { seen: number, loop: { kept: number, end: number } | null }>} */
const known = new WeakMap();

/**
 * Returns the number of tokens that a lane had written when it began to repeat itself; -1 if it does not. A cut lane
 * repeats itself if its whole lane does and the cut is long enough to show it.
 * @param {Lane} lane
 */
export function loopsAt(lane) {
  const source = lane.whole ?? lane;
  const before = known.get(source) ?? { seen: 0, loop: null };
  const loop = before.loop ?? findLoop(source.ids, before.seen);
  known.set(source, { seen: source.tokens.length, loop });
  return loop && loop.end <= lane.tokens.length ? loop.kept : -1;
}

/** @type {WeakMap<Lane, { end: Lane["end"], part: Lane }>} */
const parts = new WeakMap();

/**
 * Returns the part of a lane that figures count: up to where its text begins to repeat itself. A loop is easy to
 * predict and worthless. The last step is cut to the tokens that count.
 * @param {Lane} lane
 * @returns {Lane}
 */
export function upToLoop(lane) {
  const kept = loopsAt(lane);
  if (kept < 0) return lane;
  const found = parts.get(lane);
  if (found && found.end === lane.end) return found.part;
  const before = lane.steps.findIndex(({ first }) => first >= kept);
  const cut = lane.at(before < 0 ? lane.steps.length : before);
  const last = cut.steps[cut.steps.length - 1];
  const steps = [...cut.steps.slice(0, -1), { ...last, count: kept - last.first }];
  const more = { steps, tokens: cut.tokens.slice(0, kept), seconds: last.clock, end: lane.end, verdict: lane.verdict };
  const part = Object.assign(Object.create(Object.getPrototypeOf(lane)), cut, more, { whole: lane.whole ?? lane });
  parts.set(lane, { end: lane.end, part });
  return part;
}

/**
 * Returns the start of these lanes' figures: "The text repeats itself after token 96". Empty for no loop.
 * @param {Lane[]} lanes
 */
export function loopText(lanes) {
  const places = lanes.map(loopsAt);
  if (places.every((place) => place === places[0]))
    return places[0] < 0 ? "" : `The text repeats itself after token ${whole(places[0])}`;
  const said = lanes
    .flatMap(({ title }, i) => (places[i] < 0 ? [] : [`${title} repeats itself after token ${whole(places[i])}`]))
    .join(", ");
  return `${said[0].toUpperCase()}${said.slice(1)}`;
}

/**
 * Returns a sentence on figures of these lanes, starting with the loop if there is one.
 * @param {Lane[]} lanes
 * @param {string} sentence
 */
export function afterLoop(lanes, sentence) {
  const loop = loopText(lanes);
  return loop ? `${loop}. Up to there: ${sentence}` : sentence;
}
