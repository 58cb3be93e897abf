// What follows from a lane that was read: its figures, where two texts first differ, what waits to be verified. Pure.

/**
 * The tokens that wait for AR's word after a forward, whoever proposed them.
 * @param {Step} step
 * @returns {number[]}
 */
export function draftIds(step) {
  if (step.lookedUp.length) return step.lookedUp;
  return step.proposals.slice(step.count, step.count + step.drafted).map(([id]) => id);
}

/**
 * Figures of a lane, all from measured seconds; NaN where nothing was measured yet.
 * @type {Record<"tokens" | "forwards" | "perForward" | "perSecond" | "secondsPerForward" | "toFirst", (lane: Lane) => number>}
 */
export const folds = {
  tokens: (lane) => lane.tokens.length,
  forwards: (lane) => lane.steps.length,
  perForward: (lane) => lane.tokens.length / lane.steps.length,
  perSecond: (lane) => lane.tokens.length / lane.seconds,
  secondsPerForward: (lane) => lane.seconds / lane.steps.length,
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
 * Where the other lane stood when the faster one had ended, by their own clocks; null where none was ahead.
 * @param {Lane[]} lanes
 */
export function photoFinish(lanes) {
  if (lanes.length !== 2) return null;
  const done = lanes.filter((lane) => lane.end && ["eos", "limit"].includes(lane.end.reason));
  const first = done.sort((a, b) => a.seconds - b.seconds)[0];
  const other = lanes.find((lane) => lane !== first);
  if (!first || !other || other.seconds <= first.seconds) return null;
  const steps = numUntil(other, first.seconds);
  const last = other.steps[steps - 1];
  return { time: first.seconds, first, other, tokens: last ? last.first + last.count : 0 };
}

/**
 * How many steps of a lane have a clock of at most `time`; clocks never fall.
 * @param {Lane} lane
 * @param {number} time
 */
export function numUntil(lane, time) {
  let [low, high] = [0, lane.steps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const { clock } = lane.steps[middle];
    if (clock <= time) low = middle + 1;
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
  return run.lanes.find((lane) => lane.name !== "ar" && lane.isMars) || run.lanes[0];
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
