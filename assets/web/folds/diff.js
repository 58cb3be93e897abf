// Aligns two lists: finds the parts that both lists share and the parts that only one list has. Pure; no DOM.
//
// The common beginning and end are removed first. The middle is aligned exactly if it is short. Otherwise it is split
// at runs of items that occur exactly once in each list, in the same order, so that the work stays bounded.

const EXACT = 160_000; // maximum cells of the table for an exact alignment
const RUNS = [8, 4, 2, 1]; // lengths of the runs at which a long difference is split, tried in this order

/**
 * Returns the aligned segments in order. kind: which list has the segment. a, b: index of the segment's beginning in
 * the first and the second list. num: its length.
 * @param {readonly unknown[]} first
 * @param {readonly unknown[]} second
 * @returns {Segment[]}
 */
export function aligned(first, second) {
  /** @type {Segment[]} */
  const segments = [];
  /** @type {Add} */
  const add = (kind, a, b, num) => {
    if (!num) return;
    const last = segments.at(-1);
    if (last && last.kind === kind) last.num += num;
    else segments.push({ kind, a, b, num });
  };
  walk(first, second, { a: 0, b: 0, endA: first.length, endB: second.length }, add);
  return segments;
}

/**
 * @param {readonly unknown[]} first
 * @param {readonly unknown[]} second
 * @param {Box} box
 * @param {Add} add
 */
function walk(first, second, box, add) {
  let { a, b, endA, endB } = box;
  let head = 0;
  while (a + head < endA && b + head < endB && first[a + head] === second[b + head]) head += 1;
  add("both", a, b, head);
  [a, b] = [a + head, b + head];
  let tail = 0;
  while (endA - tail > a && endB - tail > b && first[endA - tail - 1] === second[endB - tail - 1]) tail += 1;
  [endA, endB] = [endA - tail, endB - tail];
  if (a === endA || b === endB || (endA - a) * (endB - b) <= EXACT) exact(first, second, { a, b, endA, endB }, add);
  else cut(first, second, { a, b, endA, endB }, add);
  add("both", endA, endB, tail);
}

/**
 * Aligns by the longest common subsequence. The table is filled from the end, so that segments can be read in order.
 * @param {readonly unknown[]} first
 * @param {readonly unknown[]} second
 * @param {Box} given2
 * @param {Add} add
 */
function exact(first, second, { a, b, endA, endB }, add) {
  const [rows, columns] = [endA - a, endB - b];
  if (!rows || !columns) return oneSided(add, { a, b, endA, endB });
  const width = columns + 1;
  const table = new Uint16Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i -= 1) {
    for (let j = columns - 1; j >= 0; j -= 1) {
      table[i * width + j] =
        first[a + i] === second[b + j]
          ? table[(i + 1) * width + j + 1] + 1
          : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  let [i, j] = [0, 0];
  while (i < rows && j < columns) {
    if (first[a + i] === second[b + j]) {
      add("both", a + i, b + j, 1);
      i += 1;
      j += 1;
    } else if (table[(i + 1) * width + j] >= table[i * width + j + 1]) {
      add("first", a + i, b + j, 1);
      i += 1;
    } else {
      add("second", a + i, b + j, 1);
      j += 1;
    }
  }
  return oneSided(add, { a: a + i, b: b + j, endA, endB });
}

/**
 * @param {Add} add
 * @param {Box} given
 */
function oneSided(add, { a, b, endA, endB }) {
  add("first", a, b, endA - a);
  add("second", endA, b, endB - b);
}

/**
 * Splits both lists at sequences of items that are unique in each list and have the same order in both, and aligns the
 * pieces between these sequences.
 * @param {readonly unknown[]} first
 * @param {readonly unknown[]} second
 * @param {Box} box
 * @param {Add} add
 */
function cut(first, second, box, add) {
  for (const length of RUNS) {
    const anchors = rising(sharedRuns(first, second, box, length));
    if (!anchors.length) continue;
    let { a, b } = box;
    for (const [x, y] of anchors) {
      if (x < a || y < b) continue; // overlaps the previous run
      walk(first, second, { a, b, endA: x, endB: y }, add);
      add("both", x, y, length);
      [a, b] = [x + length, y + length];
    }
    return walk(first, second, { ...box, a, b }, add);
  }
  return oneSided(add, box);
}

/**
 * @param {readonly unknown[]} first
 * @param {readonly unknown[]} second
 * @param {Box} given2
 * @param {number} length
 * @returns {[x: number, y: number][]}
 */
function sharedRuns(first, second, { a, b, endA, endB }, length) {
  /** @type {(list: readonly unknown[], from: number, to: number) => Map<string, number>} */
  const once = (list, from, to) => {
    const indices = new Map();
    for (let i = from; i + length <= to; i += 1) {
      const key = list.slice(i, i + length).join("\u0000");
      indices.set(key, indices.has(key) ? -1 : i);
    }
    return indices;
  };
  const inSecond = once(second, b, endB);
  /** @type {[x: number, y: number][]} */
  const pairs = [];
  for (const [key, x] of once(first, a, endA)) {
    const y = inSecond.get(key);
    if (x >= 0 && y !== undefined && y >= 0) pairs.push([x, y]);
  }
  return pairs;
}

/**
 * Returns the longest subsequence of pairs in which both numbers increase. The pairs are sorted by their first number.
 * @param {[x: number, y: number][]} pairs
 * @returns {[x: number, y: number][]}
 */
function rising(pairs) {
  /** @type {number[]} */
  const ends = [];
  const before = new Array(pairs.length).fill(-1);
  pairs.forEach(([, y], i) => {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pairs[ends[middle]][1] < y) low = middle + 1;
      else high = middle;
    }
    before[i] = low ? ends[low - 1] : -1;
    ends[low] = i;
  });
  const chain = [];
  for (let i = ends[ends.length - 1] ?? -1; i >= 0; i = before[i]) chain.unshift(pairs[i]);
  return chain;
}
