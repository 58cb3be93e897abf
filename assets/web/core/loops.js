// Where a text begins to repeat itself, as mars_runtime/loops.py finds it. Pure.

export const MAX_PERIOD = 64;
export const MIN_REPEATED = 48;

export const WINDOW = 112; // tokens that are looked at for what was said before
const MOST_OLD = 102; // of them, that may end a phrase which stood earlier
export const PHRASE = 12; // tokens
export const REACH = 512; // tokens before the window in which a phrase counts as said
const EVERY = 16; // tokens between two looks

/**
 * Tokens that repeat what stood one period earlier before it counts as a loop.
 * @param {number} period
 */
export const numRepeated = (period) => Math.max(MIN_REPEATED, period + Math.floor(period / 2));

/**
 * The first loop that is plain behind the first tokens of a text. kept: tokens up to the end of the first copy of what
 * then repeats; end: tokens up to the one by which that was plain.
 * @param {number[]} ids
 * @param {number} [first]
 * @returns {{ kept: number, end: number } | null}
 */
export function findLoop(ids, first = 0) {
  for (let end = first + 1; end <= ids.length; end += 1) {
    const repeated = repeatedFrom(ids, end);
    const kept = repeated < 0 && end % EVERY === 0 ? saidFrom(ids, end) : repeated;
    if (kept >= 0) return { kept, end };
  }
  return null;
}

/**
 * From where on the first tokens repeat what stood one period before them; -1 where they do not.
 * @param {number[]} ids
 * @param {number} end
 */
function repeatedFrom(ids, end) {
  for (let period = 1; period <= Math.min(MAX_PERIOD, end >> 1); period += 1) {
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
 * From where on nearly all of the last of the first tokens were said before; -1 where they were not.
 * @param {number[]} ids
 * @param {number} end
 */
function saidFrom(ids, end) {
  if (end < WINDOW) return -1;
  const said = new Set();
  let [fresh, kept] = [0, -1];
  for (let at = Math.max(0, end - WINDOW - REACH); at + PHRASE <= end; at += 1) {
    const phrase = ids.slice(at, at + PHRASE).join();
    const isInside = at + PHRASE > end - WINDOW;
    if (isInside && said.has(phrase)) kept = kept < 0 ? at : kept;
    else if (isInside) fresh += 1;
    said.add(phrase);
  }
  return fresh > WINDOW - MOST_OLD ? -1 : kept;
}

/** @type {WeakMap<Lane, { seen: number, loop: { kept: number, end: number } | null }>} */
const known = new WeakMap();

/**
 * How many tokens a lane had written when it began to repeat itself; -1 where it did not. Tokens only ever come behind.
 * @param {Lane} lane
 */
export function loopsAt(lane) {
  const before = known.get(lane) ?? { seen: 0, loop: null };
  const loop = before.loop ?? findLoop(lane.ids, before.seen);
  known.set(lane, { seen: lane.tokens.length, loop });
  return loop ? loop.kept : -1;
}
