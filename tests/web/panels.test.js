import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { aligned } from "../../assets/web/folds/diff.js";
import { endIds, proposalRows } from "../../assets/web/folds/proposals.js";
import { draftsJudged, judge } from "../../assets/web/folds/agreement.js";
import { acceptPrefix, cellOf, judgeAgain, regrouped, whatIf } from "../../assets/web/folds/whatif.js";
import { shownKey } from "../../assets/web/panels/shown.js";
import {
  agreement,
  fastest,
  NO_SPEED,
  fastestSentence,
  gridFinding,
  frontier,
  isDone,
  levelOf,
  parting,
  rangeOf,
  textsOf,
} from "../../assets/web/folds/grid.js";
import { arOf, END, forward, laneOf, LOSSLESS, LOSSLESS_SETTINGS, PLAIN } from "./runs.js";

describe("folds", () => {
  const plain = laneOf(PLAIN);
  const lossless = laneOf(LOSSLESS, { ...LOSSLESS_SETTINGS, end: "limit" });

  test("lists are aligned by what both have", () => {
    assert.deepEqual(aligned([..."abcd"], [..."abxd"]), [
      { kind: "both", a: 0, b: 0, num: 2 },
      { kind: "first", a: 2, b: 2, num: 1 },
      { kind: "second", a: 3, b: 2, num: 1 },
      { kind: "both", a: 3, b: 3, num: 1 },
    ]);
    assert.deepEqual(aligned([], []), []);
  });

  test("a long difference is cut at runs that both have once", () => {
    const numbers = (from, num) => Array.from({ length: num }, (_, i) => from + i);
    const shared = numbers(0, 20);
    const segments = aligned([...numbers(1000, 500), ...shared, 1], [...numbers(5000, 500), ...shared, 2]);
    assert.deepEqual(segments.filter(({ kind }) => kind === "both"), [{ kind: "both", a: 500, b: 500, num: 20 }]); // prettier-ignore
  });

  test("tokens beyond the first of a forward are judged by the lane of AR up to the first difference", () => {
    const found = judge(plain, arOf([1, 2, 3, 5, 9]));
    assert.deepEqual([found.own, found.agreed, found.open, found.source], [4, 1, 1, "lane"]);
    assert.deepEqual(found.judged.map(({ place, agrees }) => [place, agrees]), [[1, true], [4, false]]); // prettier-ignore
    assert.equal(judge(plain, null).source, "");
  });

  test("drafts are judged by what the next forward emitted", () => {
    assert.deepEqual(
      draftsJudged(lossless).map(({ place, agrees }) => [place, agrees]),
      [[1, true], [3, false]], // prettier-ignore
    );
  });

  test("the first proposal is always taken, NaN never", () => {
    assert.equal(acceptPrefix([0.1, 0.95, 0.9, 0.89, 0.99], 0.9), 3);
    assert.equal(acceptPrefix([NaN, NaN], 0), 1);
  });

  test("another threshold, forward by forward: at 0.8 the first would also take c", () => {
    const ends = endIds([plain]);
    assert.deepEqual([...ends], [END]);
    const { then, now, same, other } = cellOf(plain, 0, 0.8, ends);
    assert.deepEqual({ then, now, same, other }, { then: 2, now: 3, same: 1, other: 0 });
    const found = whatIf(plain, 0.8, ends);
    assert.deepEqual([found.first, found.exact, found.whole.then], [0, { forwards: 1, then: 2, now: 3 }, 7]);
    assert.equal(whatIf(plain, 0.9, ends).first, -1);
  });

  test("what became of each proposal, and what the run wrote there", () => {
    const rows = (lane, index) => proposalRows(lane, index, endIds([lane])).map(({ fate, verdict }) => [fate, verdict]);
    assert.deepEqual(rows(plain, 0), [["own", null], ["taken", null], ["refused", "same"], ["unseen", "other"]]); // prettier-ignore
    assert.deepEqual(rows(plain, 3), [["own", null], ["taken", null]]); // prettier-ignore
    assert.deepEqual(rows(lossless, 2), [["replaced", null], ["dropped", "unknown"], ["dropped", "unknown"]]); // prettier-ignore
  });

  test("cells of the grid: where they first differ from AR, and which is the fastest", () => {
    const ar = arOf([1, 2, 3, 5, 6, 7, END]);
    assert.deepEqual(parting(plain, ar), { place: -1, isSame: true });
    assert.deepEqual(parting(arOf([1, 2, END]), laneOf([forward(0, [[1, 1], [2, 1]], 2, "limit")])), { place: -1, isSame: false }); // prettier-ignore
    const [quick, slow] = [1.6, 1.2].map((ratio) => ({ lane: plain, rounds: timed(ratio) }));
    assert.equal(fastest([slow, quick]), quick);
    assert.equal(fastest([{ lane: laneOf(PLAIN, { end: "cancelled" }), rounds: timed(1.7) }]), undefined);
    assert.equal(fastest([{ lane: plain, rounds: null }]), undefined);
    assert.equal(isDone(laneOf(PLAIN, { end: "" })), false);
  });

  const timed = (ratio, { kind = "faster", spread = 0.05, limit = 1.75 } = {}) =>
    ({ kind, ratio, low: ratio - spread, high: ratio + spread, limit, rounds: 3, rate: [70, 65, 75] }); // prettier-ignore

  test("the sentence on the fastest cell says what the cells say, and which cannot be told from it", () => {
    const ar = { name: "ar", row: null, blockSize: 0, lane: arOf([1, 2, 3, 5, 6, 7, END]), rounds: timed(1) };
    const cell = (tau, blockSize, rounds, lane = plain) => ({
      ...{ name: `${tau}`, row: { tau, lossless: false }, blockSize, lane, rounds },
    });
    const [fast, near, far] = [cell(0.5, 4, timed(1.6)), cell(0.7, 2, timed(1.55)), cell(0.9, 2, timed(1.2))];
    const busy = cell(0.95, 8, { ...timed(1), kind: "busy", ratio: null, low: null, high: null });
    assert.equal(
      fastestSentence([far, near, busy, fast], ar),
      "Fastest: τ 0.5, B 4 (1.60 times as fast; not measurably slower: τ 0.7, B 2), with the same text as AR.",
    );
    for (const each of [fast, near, far]) assert.match(textsOf(each, ar).ratio, /^1\.\d\d×$/);
    assert.equal(textsOf(fast, ar).ratio, "1.60×");
    assert.equal(textsOf(fast, ar).speed, "70.0 tok/s");
    assert.match(textsOf(fast, ar).range, /median of 3 rounds, 1\.5\d? to 1\.6\d?\)$/);
    assert.deepEqual([textsOf(busy, ar).ratio, textsOf(busy, ar).speed], ["not measured", ""]);
    const short = cell(0.9, 4, { ...timed(1), kind: "short", ratio: null, low: null, high: null });
    assert.deepEqual([textsOf(short, ar).ratio, textsOf(short, ar).speed], ["too short to time", ""]);
    assert.equal(
      gridFinding([short], ar),
      "τ 0.9, B 4: the same text as AR in 4 passes instead of 7; too short to time.",
    );
    assert.equal(fastestSentence([busy], ar), NO_SPEED);
    assert.equal(
      gridFinding([far, near], ar),
      "τ 0.7, B 2: the same text as AR in 4 passes instead of 7, 1.55 times as fast.",
    );
    const exact = { ...far, row: { tau: 0, lossless: true } };
    assert.equal(
      gridFinding([fast, exact], ar),
      "Lossless, B 2: the same text as AR in 4 passes instead of 7, 1.20 times as fast.",
    );
    assert.equal(gridFinding([], ar), "");
    const other = cell(0.3, 8, timed(1.7), laneOf([forward(0, [[9, 1], [2, 1]], 2, "eos")])); // prettier-ignore
    assert.equal(
      fastestSentence([far, other], ar),
      "Fastest: τ 0.3, B 8 (1.70 times as fast). Fastest with the same text as AR: τ 0.9, B 2 (1.20 times as fast).",
    );
    assert.equal(gridFinding([other], ar), "No setting wrote the same text as AR.");
    assert.equal(gridFinding([other, cell(0.9, 2, null, laneOf([], { end: "" }))], ar), "");
  });

  test("agreement is the share of the tokens that AR wrote too, and not known before both are whole", () => {
    const ar = arOf([1, 2, 3, 4]);
    assert.equal(agreement(ar, ar), 1);
    assert.equal(agreement(arOf([1, 9, 3, 4]), ar), 0.75);
    assert.equal(agreement(arOf([1, 2, 3, 4, 9, 9, 9, 9]), ar), 0.5);
    assert.ok(Number.isNaN(agreement(arOf([1, 2], { end: "" }), ar)));
  });

  test("the frontier holds what no other point beats", () => {
    const point = (x, y) => ({ x, y });
    const points = [point(1, 1), point(2, 0.5), point(1.5, 0.4), point(3, 0.2), point(2, 0.5), point(1.2, 1)];
    assert.deepEqual(
      frontier(points).map(({ x, y }) => [x, y]),
      [[1.2, 1], [2, 0.5], [2, 0.5], [3, 0.2]], // prettier-ignore
    );
  });

  test("a value has its fifth of the range, what is not known has none", () => {
    assert.deepEqual([1, 1.39, 1.41, 2.9, 3, 9].map((value) => levelOf(value, [1, 3])), [1, 1, 2, 5, 5, 5]); // prettier-ignore
    assert.deepEqual([levelOf(NaN, [1, 3]), levelOf(1, [1, 1])], [0, 1]);
    assert.deepEqual(rangeOf("tpf", [1.2, NaN]), [1, 1.5]);
    assert.deepEqual(rangeOf("tpf", [1.2, 4]), [1, 4]);
    assert.deepEqual([rangeOf("agreement", [0.5]), rangeOf("agreement", [1, NaN])], [[0.5, 1], [0.8, 1]]); // prettier-ignore
    assert.deepEqual(rangeOf("speed", [0.5, 0.8, NaN]), [0.5, 1]);
    assert.deepEqual(rangeOf("speed", []), [1, 1]);
  });
});

describe("the lens", () => {
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

  test("behind a refused draft of a lossless run the next one counts from exactly the threshold on", () => {
    const lane = laneOf(
      [
        forward(0, [[1, 0.99], [2, 0.5], [3, 0.9]], 1, "threshold", { num_drafted: 2 }), // prettier-ignore
        forward(1, [[2, 0.9], [3, 0.9], [4, 0.9]], 3, "block", { num_pending: 3, num_drafted: 0 }), // prettier-ignore
      ],
      LOSSLESS_SETTINGS,
    );
    assert.deepEqual(seen(lane, 0.9), [[0, 1, ""], [1, 1, "|"], [2, 2, "?"]]); // prettier-ignore
    assert.deepEqual(seen(lane, 0.91), [[0, 1, ""], [1, 1, "|"], [2, 1, "?"], [3, 1, "?"]]); // prettier-ignore
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
});

describe("when panels are drawn", () => {
  // When panels are drawn anew: what they speak of changed.

  test("panels are drawn anew with each step, and once more when a lane ends", () => {
    const lane = { name: "mars", isAr: false, steps: [{}], end: null };
    const view = { run: { id: "a", lanes: [lane] }, selected: null, shown: (each) => each };
    const keys = [shownKey(view)];
    lane.steps.push({});
    keys.push(shownKey(view));
    lane.end = { reason: "eos" };
    keys.push(shownKey(view));
    assert.equal(new Set(keys).size, 3);
  });
});
