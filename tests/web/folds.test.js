import assert from "node:assert/strict";
import { test } from "node:test";

import {
  acceptance,
  byKind,
  calibration,
  codeRanges,
  draftsJudged,
  forwardCounts,
  judge,
  kindsOf,
} from "../../assets/web/folds/statistics.js";
import { aligned } from "../../assets/web/folds/diff.js";
import { acceptPrefix, cellOf, whatIf } from "../../assets/web/folds/whatif.js";
import { endIds, proposalRows } from "../../assets/web/folds/proposals.js";
import { agreement, fastest, frontier, isDone, levelOf, parting, rangeOf } from "../../assets/web/views/grid/folds.js";
import { END, LOSSLESS, LOSSLESS_SETTINGS, PLAIN, arOf, forward, laneOf } from "./runs.js";

const plain = laneOf(PLAIN);
const lossless = laneOf(LOSSLESS, { ...LOSSLESS_SETTINGS, end: "limit" });

test("acceptance by position: of four forwards three have a third slot, and none took it", () => {
  assert.deepEqual(
    acceptance(plain.steps).map(({ proposed, emitted }) => [proposed, emitted]),
    [[4, 4], [4, 3], [3, 0], [3, 0]], // prettier-ignore
  );
  assert.deepEqual(forwardCounts(plain.steps), [
    { count: 1, forwards: 1 },
    { count: 2, forwards: 3 },
  ]);
});

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

test("bins of confidence", () => {
  const bins = calibration([{ confidence: 0.96, agrees: true }, { confidence: 0.97, agrees: false }]); // prettier-ignore
  assert.deepEqual([bins[6].num, bins[6].agreed, bins[6].share, bins[6].mean.toFixed(3)], [2, 1, 0.5, "0.965"]);
});

test("kinds of text", () => {
  assert.deepEqual(codeRanges("a```b```c"), [[1, 8]]);
  const step = { count: 2 };
  const tokens = ["The", " 4", " ", "."].map((text) => ({ text, step, joins: -1, isEnd: false }));
  assert.deepEqual(kindsOf(tokens), ["words", "numbers", "white space", "punctuation"]);
  assert.deepEqual(byKind(tokens)[0], { kind: "words", tokens: 1, forwards: 0.5, tpf: 2 });
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
  const [quick, slow] = [0.1, 0.2].map((seconds) => ({ lane: laneOf(PLAIN, { seconds }) }));
  assert.equal(fastest([slow, quick]), quick);
  assert.equal(fastest([{ lane: laneOf(PLAIN, { end: "cancelled" }) }]), undefined);
  assert.equal(isDone(laneOf(PLAIN, { end: "" })), false);
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
