// Pure: what has been told of a load, line by line, and what its charts draw. No DOM.

const SATURATED = 0.9; // of what is offered: who answers less is saturated
const WINDOW = 1; // seconds over which throughput is counted
export const ORDER = ["ar", "lossless", "fixed", "follow", "draft"]; // as ways.py names them

/**
 * A run of which nothing was told yet.
 * @param {LoadHead} head
 * @returns {LoadModel}
 */
export const begun = (head) => ({
  head,
  about: null,
  day: null,
  ways: head.ways.map((way) => ({ ...way, ticks: [], decisions: [], points: [], agreement: null })),
});

/**
 * Takes one line of the feed; one that names no way of the run is an error.
 * @param {LoadModel} model
 * @param {string} tag
 * @param {any} data
 */
export function take(model, tag, data) {
  if (tag === "about" || tag === "day") {
    model[tag] = data;
    return;
  }
  const way = model.ways.find((each) => each.name === data.way);
  if (!way) throw new Error(`No way is called ${data.way}.`);
  if (tag === "tick") way.ticks = [...(data.at < (way.ticks.at(-1)?.at ?? 0) ? [] : way.ticks), data];
  else if (tag === "decision") way.decisions.push(data);
  else if (tag === "point") way.points.push(data);
  else if (tag === "agreement") way.agreement = data;
  else throw new Error(`No line is called ${tag}.`);
}

/**
 * Tokens per second at each tick: written since the last tick that is a window old.
 * @param {LoadTick[]} ticks
 * @returns {{ x: number, y: number }[]}
 */
export const throughput = (ticks) =>
  ticks.map((tick, i) => {
    const before = ticks.slice(0, i).findLast(({ at }) => at <= tick.at - WINDOW) ?? { at: 0, tokens: 0 };
    const seconds = tick.at - before.at;
    return { x: tick.at, y: seconds > 0 ? (tick.tokens - before.tokens) / seconds : 0 };
  });

/**
 * What the controller decided as steps: each value holds to the next, the last one to the end.
 * @param {LoadDecision[]} decisions
 * @param {number} end seconds
 * @returns {{ x: number, y: number }[]}
 */
export function steps(decisions, end) {
  const found = decisions.map((each) => ({ x: each.at, y: each.lossless ? Number(each.block_size) : each.tau }));
  const last = found.at(-1);
  return last && end > last.x ? [...found, { x: end, y: last.y }] : found;
}

/**
 * The most requests per second that a way answered, 0 for no point; isFound: whether clearly more was offered, so that
 * this was all it could do.
 * @param {LoadPoint[]} points
 */
export function saturation(points) {
  const rate = Math.max(0, ...points.map(({ answered }) => answered));
  return { rate, isFound: points.some(({ offered }) => SATURATED * offered > rate) };
}

/**
 * The fewest machines whose p99 is at most twice that of the most: more would hardly help. None where there are none.
 * @param {LoadFleet[]} fleets
 * @returns {LoadFleet | undefined}
 */
export const enough = (fleets) => {
  const best = fleets.at(-1);
  return best && fleets.find(({ p99 }) => p99 <= 2 * best.p99);
};

/** @param {LoadModel} model */
export const endOf = (model) => Math.max(0.1, ...model.ways.map(({ ticks }) => ticks.at(-1)?.at ?? 0));
