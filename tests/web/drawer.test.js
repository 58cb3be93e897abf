import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";

import { aligned } from "../../assets/web/folds/diff.js";
import { placesAround, placesOf } from "../../assets/web/folds/places.js";
import { endIds, proposalRows } from "../../assets/web/folds/proposals.js";
import { acceptedUntilEnd, acceptPrefix, countWithTau } from "../../assets/web/folds/whatif.js";
import { arOf, END, forward, laneOf, LOSSLESS, LOSSLESS_SETTINGS, PLAIN } from "./runs.js";

const ACCEPTED = JSON.parse(readFileSync(new URL("acceptance.json", import.meta.url), "utf-8")); // tools/wire_types.py
const plain = laneOf(PLAIN);
const lossless = laneOf(LOSSLESS, { ...LOSSLESS_SETTINGS, end: "limit" });

describe("the diff", () => {
  test("lists are aligned by what both have", () => {
    assert.deepEqual(aligned([..."abcd"], [..."abxd"]), [
      { kind: "both", a: 0, b: 0, num: 2 },
      { kind: "first", a: 2, b: 2, num: 1 },
      { kind: "second", a: 3, b: 2, num: 1 },
      { kind: "both", a: 3, b: 3, num: 1 },
    ]);
    assert.deepEqual(aligned([], []), []);
  });

  test("a common run after a long difference is found", () => {
    const numbers = (from, num) => Array.from({ length: num }, (_, i) => from + i);
    const shared = numbers(0, 20);
    const segments = aligned([...numbers(1000, 500), ...shared, 1], [...numbers(5000, 500), ...shared, 2]);
    assert.deepEqual(segments.filter(({ kind }) => kind === "both"), [{ kind: "both", a: 500, b: 500, num: 20 }]); // prettier-ignore
  });
});

describe("the places where a pass went wrong", () => {
  const found = (lane, ar) => placesOf(lane, ar).map(({ token, step, kind, isFirst }) => [token, step, kind, isFirst]);

  test("an unverified token that AR would not have chosen, and the first difference from AR's text", () => {
    const checked = structuredClone(PLAIN);
    Object.assign(checked[1], { checks: [[1, 0.9], [9, 0.6]] }); // prettier-ignore
    const lane = laneOf(checked);
    assert.deepEqual(found(lane), [[1, 0, "wrong", false]]);
    assert.deepEqual(found(lane, arOf([1, 9, 3])), [[1, 0, "wrong", true]]);
    assert.deepEqual(placesOf(lane)[0], { token: 1, step: 0, isFirst: false, kind: "wrong", mine: 2, ar: 9, p: 0.6 });
    assert.deepEqual(found(plain, arOf([1, 2, 3, 5, 9])), [[4, 2, "differs", true]]);
    assert.deepEqual(found(plain, arOf([1, 2, 3])), []);
  });

  test("a draft that AR corrected", () => {
    assert.deepEqual(found(lossless), [[3, 2, "corrected", false]]);
    const [{ mine, ar }] = placesOf(lossless);
    assert.deepEqual([mine, ar], [9, lossless.tokens[3].id]);
  });

  test("the place at a token or in a pass, and those before and after it", () => {
    const places = [2, 5, 6].map((token) => ({ token, step: token < 5 ? 0 : 1 }));
    const around = (step, token) => Object.values(placesAround(places, step, token));
    assert.deepEqual(around({ index: 1, first: 4 }, 5), [1, 0, 2]);
    assert.deepEqual(around({ index: 1, first: 4 }, -1), [1, 0, 2]);
    assert.deepEqual(around({ index: 1, first: 4 }, 4), [-1, 0, 1]);
    assert.deepEqual(around({ index: 2, first: 7 }, -1), [-1, 2, -1]);
    assert.deepEqual(Object.values(placesAround([], { index: 0, first: 0 }, 0)), [-1, -1, -1]);
  });
});

describe("the proposals of a pass", () => {
  test("what became of each, and what the run wrote there", () => {
    const rows = (lane, index) => proposalRows(lane, index, endIds([lane])).map(({ fate, verdict }) => [fate, verdict]);
    assert.deepEqual(rows(plain, 0), [["own", null], ["taken", null], ["refused", "same"], ["unseen", "other"]]); // prettier-ignore
    assert.deepEqual(rows(plain, 3), [["own", null], ["taken", null]]); // prettier-ignore
    assert.deepEqual(rows(lossless, 2), [["replaced", null], ["dropped", "unknown"], ["dropped", "unknown"]]); // prettier-ignore
  });

  test("the page accepts what the runtime accepts", () => {
    for (const { tau, ends, proposals, lossless: isExact, stop, remaining, count } of ACCEPTED) {
      const isOver = isExact && ["eos", "limit"].includes(stop); // drafts nothing
      const num = acceptedUntilEnd(proposals, tau, new Set(ends), Number(isExact)) - Number(isExact);
      assert.equal(isOver ? 0 : Math.min(num, remaining), count, JSON.stringify(proposals));
    }
    assert.deepEqual([...new Set(ACCEPTED.map(({ stop }) => stop))].sort(), ["block", "eos", "limit", "mismatch", "threshold"]); // prettier-ignore
    assert.equal(acceptPrefix([NaN, NaN], 0), 1);
  });

  test("another threshold accepts or drafts another number of them", () => {
    const again = (lane, taus, index = 0) => taus.map((tau) => countWithTau(lane, index, tau, new Set([END])));
    assert.deepEqual(again(plain, [1, 0.9, 0.8, 0.4]), [1, 2, 3, 4]);
    assert.deepEqual(again(arOf([1, 2]), [0, 1]), [1, 1]);
    assert.deepEqual(again(lossless, [0.7, 0.9, 0.96]), [2, 1, 0]);
    const slots = [[1, 0.99], [2, 0.95], [3, 0.93]]; // prettier-ignore
    // Automatic B drafted fewer tokens than its threshold allowed: no threshold drafts more.
    const short = laneOf([forward(0, slots, 1, "threshold", { num_drafted: 1 })], LOSSLESS_SETTINGS);
    assert.deepEqual(again(short, [0, 0.9, 0.94, 0.96]), [1, 1, 1, 0]);
    const looked = laneOf([forward(0, slots, 1, "threshold", { looked_up: [2] })], LOSSLESS_SETTINGS);
    assert.deepEqual(again(looked, [0, 0.9, 0.94, 0.96]), [1, 1, 1, 1]);
  });
});
