// The state of a load test, built line by line, and the data of its charts. Pure; no DOM.

import { capitalised, counted, figure, passesAgainst, short } from "../core/words.js";

const SATURATED = 0.9; // a method that answers less than this share of the offered requests is saturated
const WINDOW = 1; // seconds over which throughput is averaged

/**
 * Returns the state of a load test before its first line.
 * @param {LoadHead} head
 * @returns {LoadModel}
 */
export const begun = (head) => ({
  head,
  about: null,
  ways: head.ways.map((way) => ({ ...way, ticks: [], ended: [], decisions: [], points: [], agreement: null })),
});

/**
 * Adds one line to the state. Throws if the line has an unknown tag or method.
 * @param {LoadModel} model
 * @param {string} tag
 * @param {any} data
 */
export function take(model, tag, data) {
  if (tag === "about") {
    model.about = data;
    return;
  }
  const way = model.ways.find(({ name }) => name === data.way);
  if (!way) throw new Error(`The load test has no method ${data.way}.`);
  if (tag === "tick") {
    way.ticks = [...(isAnotherRound(way.ticks, data) ? [] : way.ticks), data];
    if (data.over) way.ended.push(data);
  } else if (tag === "decision") way.decisions = [...(isAnotherRound(way.decisions, data) ? [] : way.decisions), data];
  else if (tag === "point") way.points.push(data);
  else if (tag === "agreement") way.agreement = data;
  else throw new Error(`Unknown line tag ${tag}.`);
}

/**
 * Returns whether a new entry of a time series begins another round, because its time is before the previous entry's
 * time. Charts show only the latest round.
 * @param {{ at: number }[]} before
 * @param {{ at: number }} next
 */
const isAnotherRound = (before, next) => next.at < (before.at(-1)?.at ?? 0);

/** @type {(keyof LoadTick)[]} */
const NUMBERS = ["num_arrived", "num_done", "tokens_per_second", "requests_per_second", "tpf", "in_time"];
/** @type {(keyof LoadTick)[]} */
const SPREADS = ["ttft", "tpot", "latency"];

/**
 * Returns the summary of a method: the medians of its finished rounds or, before the first round has ended, the latest
 * measurement.
 * @param {Pick<LoadWay, "ticks" | "ended">} way
 * @returns {LoadTick | undefined}
 */
export function summaryOf({ ticks, ended }) {
  if (ended.length < 2) return ended[0] ?? ticks.at(-1);
  /** @type {Record<string, unknown>} */
  const summary = { ...ended[0] };
  for (const key of NUMBERS) summary[key] = middle(ended.map((tick) => /** @type {number | null} */ (tick[key])));
  for (const key of SPREADS) {
    const spreads = ended.flatMap((tick) => /** @type {LoadSpread | null} */ (tick[key]) ?? []);
    const [p50, p99] = [middle(spreads.map((spread) => spread.p50)), middle(spreads.map((spread) => spread.p99))];
    summary[key] = p50 === null ? null : { p50, p99 };
  }
  return /** @type {LoadTick} */ (/** @type {unknown} */ (summary));
}

/** @param {number[]} values */
const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};

/** @param {(number | null)[]} values */
function middle(values) {
  const known = values.filter((value) => typeof value === "number");
  return known.length ? median(known) : null;
}

/**
 * Returns the lowest and highest value of a figure over the rounds; null if fewer than two rounds have a value.
 * @param {LoadTick[]} ended
 * @param {(tick: LoadTick) => number | null | undefined} of
 * @returns {[low: number, high: number] | null}
 */
export function rangeOver(ended, of) {
  const known = ended.map(of).filter((value) => typeof value === "number");
  return known.length > 1 ? [Math.min(...known), Math.max(...known)] : null;
}

/**
 * Returns one point for each offered rate: the medians over the rounds.
 * @param {LoadPoint[]} points
 * @returns {LoadPoint[]}
 */
export function curveOf(points) {
  const rates = [...new Set(points.map(({ offered }) => offered))];
  return rates.map((offered) => {
    const same = points.filter((point) => point.offered === offered);
    const middlePoint = [...same].sort((a, b) => a.answered - b.answered)[same.length >> 1];
    const waits = same.flatMap(({ ttft }) => (ttft ? [ttft.p99] : []));
    const ttft = middlePoint.ttft && { ...middlePoint.ttft, p99: median(waits) };
    return { ...middlePoint, answered: median(same.map(({ answered }) => answered)), ttft };
  });
}

/**
 * Returns the tokens per second at each tick, averaged over the WINDOW before the tick.
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
 * Returns the points of a step chart of the controller's decisions. The value of a decision lasts until the next
 * decision; the last value lasts until `end`.
 * @param {LoadDecision[]} decisions
 * @param {number} end seconds
 * @returns {{ x: number, y: number }[]}
 */
export function steps(decisions, end) {
  const points = decisions.map(({ at, lossless, block_size: blockSize, tau }) => ({
    x: at,
    y: lossless ? Number(blockSize) : tau,
  }));
  const last = points.at(-1);
  return last && end > last.x ? [...points, { x: end, y: last.y }] : points;
}

/**
 * Returns the highest request rate that a method reached. rate: the most requests per second that it answered, 0
 * without points. isFound: whether clearly more requests were offered, so that this rate is its maximum.
 * @param {LoadPoint[]} all
 */
export function saturation(all) {
  const points = curveOf(all);
  const rate = Math.max(0, ...points.map(({ answered }) => answered));
  return { rate, isFound: points.some(({ offered }) => SATURATED * offered > rate) };
}

/**
 * Describes the arrivals: how many requests are expected at the chosen rate, and how many were drawn at random.
 * @param {LoadHead} head
 */
export function arrivalsText({ question, kind, requests, seconds, rate }) {
  const within = `in ${short(seconds, 1)} s`;
  const all = `${counted(requests, "request")} ${within}`;
  const expected = Math.round((rate ?? 0) * seconds);
  if (!rate || kind === RECORDED) return `${KINDS[kind]}: ${all}.`;
  if (question === "curve")
    return `${KINDS[kind]} at up to ${short(rate, 1)} requests/s, ${short(seconds, 1)} s at each rate.`;
  const at = `${KINDS[kind]} at ${short(rate, 1)} requests/s`;
  if (expected === requests) return `${at}: ${all}.`;
  return `${at}: ${expected} expected ${within}, ${requests} in this random draw.`;
}

const RECORDED = "recorded";
/** @type {Record<string, string>} */
const KINDS = { Poisson: "Poisson arrivals", bursts: "Arrivals in bursts", [RECORDED]: "Recorded arrivals" };

const [PLAIN, LOSSLESS] = ["ar", "lossless"];
export const NO_GAIN = "it saves no time under this load.";

/**
 * Returns the result of a load test, in passes and in time; "" before plain AR and another method have ended a round.
 * @param {LoadModel} model
 */
export function loadFinding({ head, ways }) {
  if (head.question === "curve") return curveFinding(ways);
  const ar = ways.find(({ name }) => name === PLAIN);
  const way = ways.find(({ name }) => name === LOSSLESS) ?? ways.find(({ name }) => name !== PLAIN);
  const [plain, other] = [ar, way].map((method) => method?.ended.length && summaryOf(method));
  if (!way || !plain || !other || !plain.tpf || !other.tpf) return "";
  const passes = `${capitalised(way.title)}: answers ${passesAgainst(plain.tpf / other.tpf, 1, ar?.title ?? PLAIN)}`;
  if (!plain.latency || !other.latency) return `${passes}.`;
  if (other.latency.p50 > plain.latency.p50) return `${passes}; ${NO_GAIN}`;
  return `${passes}; the median answer took ${figure(other.latency.p50)} s instead of ${figure(plain.latency.p50)} s.`;
}

/** @param {LoadWay[]} ways */
function curveFinding(ways) {
  const results = ways
    .filter(({ points }) => points.length)
    .map(({ title, points }) => {
      const { rate, isFound } = saturation(points);
      return `${title} ${isFound ? "saturates at" : "kept up with"} ${figure(rate)} requests/s`;
    });
  return results.length ? `${capitalised(results.join(", "))}.` : "";
}

/** @param {LoadModel} model */
export const endOf = (model) => Math.max(0.1, ...model.ways.map(({ ticks }) => ticks.at(-1)?.at ?? 0));
