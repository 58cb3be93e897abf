// What forwards took, in numbers: acceptance by position, how many tokens each forward took. Pure; no DOM.

/**
 * For each position in a forward: how many forwards proposed there, and how many of these emitted there.
 * @param {Pick<Step, "proposals" | "count">[]} steps
 */
export function acceptance(steps) {
  const positions = [];
  for (const { proposals, count } of steps) {
    while (positions.length < proposals.length) positions.push({ proposed: 0, emitted: 0 });
    for (let i = 0; i < proposals.length; i += 1) {
      positions[i].proposed += 1;
      if (i < count) positions[i].emitted += 1;
    }
  }
  return positions.map((each, i) => ({ position: i + 1, ...each, share: each.emitted / each.proposed }));
}

/**
 * How many forwards took 1, 2, 3 ... tokens, up to the most that one took.
 * @param {Pick<Step, "proposals" | "count">[]} steps
 */
export function forwardCounts(steps) {
  const counts = [];
  for (const { count } of steps) {
    while (counts.length < count) counts.push({ count: counts.length + 1, forwards: 0 });
    if (count > 0) counts[count - 1].forwards += 1;
  }
  return counts;
}
