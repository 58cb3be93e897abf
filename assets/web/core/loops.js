// Where a text begins to repeat itself, as mars_runtime/loops.py finds it. Pure.

export const MAX_PERIOD = 64;
export const MIN_REPEATED = 48;

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
    for (let period = 1; period <= Math.min(MAX_PERIOD, end >> 1); period += 1) {
      const kept = end - numRepeated(period);
      if (kept >= period && isRepeated(ids, kept, end, period)) return { kept, end };
    }
  }
  return null;
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
