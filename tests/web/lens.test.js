import assert from "node:assert/strict";
import { test } from "node:test";

import { judgeAgain, regrouped, whatIf } from "../../assets/web/folds/whatif.js";
import { END, LOSSLESS, LOSSLESS_SETTINGS, PLAIN, arOf, forward, laneOf } from "./runs.js";

const plain = laneOf(PLAIN);
const lossless = laneOf(LOSSLESS, { ...LOSSLESS_SETTINGS, end: "limit" });

// [first, count, what it is] of each group: "" for exact, "|" for that of the first difference, "?" for an estimate.
const seen = (lane, tau) =>
  regrouped(lane, whatIf(lane, tau, new Set([END])), tau).map(({ first, count, isGuess, isFirst }) => [
    first,
    count,
    isFirst ? "|" : isGuess ? "?" : "",
  ]);

test("through a threshold that changes nothing the groups are those that were written", () => {
  assert.deepEqual(seen(plain, 0.91), [[0, 2, ""], [2, 1, ""], [3, 2, ""], [5, 2, ""]]); // prettier-ignore
  assert.deepEqual(seen(lossless, 0.9), [[0, 1, ""], [1, 2, ""], [3, 1, ""]]); // prettier-ignore
});

test("a lower threshold takes more, as long as the run wrote the same; all behind it is an estimate", () => {
  assert.deepEqual(seen(plain, 0.8), [[0, 3, "|"], [3, 2, "?"], [5, 2, "?"]]); // prettier-ignore
  assert.deepEqual(seen(plain, 0.4), [[0, 3, "|"], [3, 2, "?"], [5, 2, "?"]]); // prettier-ignore
});

test("what a higher threshold refuses would have taken forwards of its own", () => {
  const ones = [0, 1, 2, 3, 4, 5, 6].map((place) => [place, 1, place ? "?" : "|"]);
  assert.deepEqual(seen(plain, 1), ones);
});

test("in a lossless run drafts come one forward later, and AR's own token behind them", () => {
  assert.deepEqual(seen(lossless, 0.7), [[0, 1, ""], [1, 3, "|"]]); // prettier-ignore
  assert.deepEqual(seen(lossless, 0.96), [[0, 1, ""], [1, 1, "|"], [2, 1, "?"], [3, 1, "?"]]); // prettier-ignore
});

test("plain AR has groups of one through every threshold", () => {
  const ar = arOf([1, 2, END]);
  for (const tau of [0, 0.5, 1]) assert.deepEqual(seen(ar, tau), [[0, 1, ""], [1, 1, ""], [2, 1, ""]]); // prettier-ignore
});

test("where B auto drafted fewer than its threshold allowed, no threshold drafts more", () => {
  const slots = [[1, 0.99], [2, 0.95], [3, 0.93]]; // prettier-ignore
  const short = laneOf([forward(0, slots, 1, "threshold", { num_drafted: 1 })], LOSSLESS_SETTINGS);
  const again = (lane, taus) => taus.map((tau) => judgeAgain(lane, 0, tau, new Set()));
  assert.deepEqual(again(short, [0, 0.9, 0.94, 0.96]), [1, 1, 1, 0]);
  const looked = laneOf([forward(0, slots, 1, "threshold", { looked_up: [2] })], LOSSLESS_SETTINGS);
  assert.deepEqual(again(looked, [0, 0.9, 0.94, 0.96]), [1, 1, 1, 1]);
  const full = laneOf([forward(0, slots, 1, "threshold", { num_drafted: 2 })], LOSSLESS_SETTINGS);
  assert.deepEqual(again(full, [0, 0.9, 0.94, 0.96]), [2, 2, 1, 0]);
});
