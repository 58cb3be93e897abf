// Finds where a text begins to repeat itself, from the server's detection (mars_runtime/runs/annotations.py), and cuts a run at
// that point. Pure; no DOM.

import { whole } from "./words.js";

/**
 * Returns the number of tokens that a lane had written before its text began to repeat itself; -1 if the text does not
 * repeat itself. A lane that was cut after some steps counts as repeating only if the cut still contains the tokens by
 * which the server detected the repetition.
 * @param {Lane} lane
 */
export function loopsAt(lane) {
  const { loop } = lane.whole ?? lane;
  return loop && loop[1] <= lane.tokens.length ? loop[0] : -1;
}

/** @type {WeakMap<Lane, { end: Lane["end"], part: Lane }>} */
const parts = new WeakMap();

/**
 * Returns the part of a lane before its text begins to repeat itself. Figures count only this part, because a loop is
 * easy to predict and would inflate them. The last step is cut to its tokens before the loop.
 * @param {Lane} lane @returns {Lane}
 */
export function upToLoop(lane) {
  const numTokens = loopsAt(lane);
  if (numTokens < 0) return lane;
  const cached = parts.get(lane);
  if (cached && cached.end === lane.end) return cached.part;
  const before = lane.steps.findIndex(({ first }) => first >= numTokens);
  const cut = lane.at(before < 0 ? lane.steps.length : before);
  const last = cut.steps[cut.steps.length - 1];
  const count = numTokens - last.first;
  const steps = [...cut.steps.slice(0, -1), { ...last, count, sources: last.sources.slice(0, count) }];
  const more = {
    steps,
    tokens: cut.tokens.slice(0, numTokens),
    seconds: last.clock,
    end: lane.end,
    verdict: lane.verdict,
  };
  const part = Object.assign(Object.create(Object.getPrototypeOf(lane)), cut, more, { whole: lane.whole ?? lane });
  parts.set(lane, { end: lane.end, part });
  return part;
}

/**
 * Returns a sentence such as "The text repeats itself after token 96", or "" if no text loops.
 * @param {Lane[]} lanes
 */
export function loopText(lanes) {
  const places = lanes.map(loopsAt);
  if (places.every((place) => place === places[0]))
    return places[0] < 0 ? "" : `The text repeats itself after token ${whole(places[0])}`;
  const text = lanes
    .flatMap(({ title }, i) => (places[i] < 0 ? [] : [`${title} repeats itself after token ${whole(places[i])}`]))
    .join(", ");
  return `${text[0].toUpperCase()}${text.slice(1)}`;
}

/**
 * Returns a short text such as "loop after token 96", or "" if no text loops.
 * @param {Lane[]} lanes
 */
export function loopPlace(lanes) {
  const places = lanes.map(loopsAt);
  const isShared = places.every((place) => place === places[0]);
  const looping = lanes.flatMap(({ title }, i) => (places[i] < 0 ? [] : [`${whole(places[i])} (${title})`]));
  if (!looping.length) return "";
  return `loop after token ${isShared ? whole(places[0]) : looping.join(", ")}`;
}

/**
 * Returns `sentence`, which describes figures of these lanes. If a text repeats itself, the result begins with the
 * position where the repetition starts.
 * @param {Lane[]} lanes @param {string} sentence
 */
export function afterLoop(lanes, sentence) {
  const loop = loopText(lanes);
  return loop ? `${loop}. Up to that point: ${sentence}` : sentence;
}
