// Aligns two lists, such as the token ids of two texts. `aligned` is the page's one diff: TextPane marks all differences
// of two lanes with it. Pure; no DOM.

const MOST = 1500; // differences after which the rest of both lists counts as different, so that the work stays bounded

/**
 * Returns the aligned segments in order. kind: which list has the segment ("both", "first" or "second"). a, b: index of
 * the segment's beginning in the first and the second list. num: its length. Finds the fewest differences (Myers, "An
 * O(ND) Difference Algorithm and Its Variations"). `levels[d]` has, for each diagonal k = x - y at index k + d, the
 * farthest x that is reached with d differences; -1 if none is.
 * @param {readonly unknown[]} first @param {readonly unknown[]} second
 */
export function aligned(first, second) {
  const [m, n] = [first.length, second.length];
  /** @type {Int32Array[]} */
  const levels = [];
  let [x, y] = [0, 0]; // the farthest position
  for (let d = 0; d <= MOST && (d === 0 || x < m || y < n); d += 1) {
    const level = new Int32Array(2 * d + 1).fill(-1);
    levels.push(level);
    for (let k = -d; k <= d; k += 2) {
      let i = d ? stepTo(levels[d - 1], d - 1, k, m, n).x : 0;
      if (i < 0) continue;
      while (i < m && i - k < n && first[i] === second[i - k]) i += 1;
      level[k + d] = i;
      if (2 * i - k > x + y || d === 0) [x, y] = [i, i - k];
    }
  }
  return segmentsOf(levels, { x, y, m, n });
}

/**
 * Returns the position on diagonal k after one more difference than in `level`, before the common items that follow.
 * isFirst: whether the difference is an item of the first list. x is -1 if the position is not reached.
 * @param {Int32Array} level
 * @param {number} d number of differences of `level`
 * @param {number} k @param {number} m @param {number} n
 */
function stepTo(level, d, k, m, n) {
  const [below, above] = [level[k - 1 + d] ?? -1, level[k + 1 + d] ?? -1];
  const right = below >= 0 && below < m ? below + 1 : -1; // one more item of the first list
  const down = above >= 0 && above - k <= n ? above : -1; // one more item of the second list
  return down >= right ? { x: down, isFirst: false } : { x: right, isFirst: true };
}

/**
 * Follows the differences back from the farthest position.
 * @param {Int32Array[]} levels @param {{ x: number, y: number, m: number, n: number }} end
 */
function segmentsOf(levels, { x, y, m, n }) {
  /** @type {Segment[]} */
  const segments = []; // from the last to the first
  /** @type {(kind: string, a: number, b: number, num: number) => void} */
  const add = (kind, a, b, num) => {
    const next = segments.at(-1);
    if (num && next?.kind === kind) Object.assign(next, { a, b, num: next.num + num });
    else if (num) segments.push({ kind, a, b, num });
  };
  add("second", m, y, n - y);
  add("first", x, y, m - x);
  let d = levels.findIndex((level, i) => level[x - y + i] === x);
  for (; d > 0; d -= 1) {
    const { x: from, isFirst } = stepTo(levels[d - 1], d - 1, x - y, m, n);
    const k = x - y;
    add("both", from, from - k, x - from);
    [x, y] = isFirst ? [from - 1, from - k] : [from, from - k - 1];
    add(isFirst ? "first" : "second", x, y, 1);
  }
  add("both", 0, 0, x);
  return segments.reverse();
}
