import assert from "node:assert/strict";
import { describe, test } from "node:test";

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
import { arOf, END, forward, laneOf, PLAIN } from "./runs.js";

describe("folds", () => {
  const plain = laneOf(PLAIN);

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
