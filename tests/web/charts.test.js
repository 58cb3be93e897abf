import assert from "node:assert/strict";
import { test } from "node:test";

import { CLOCKS } from "../../assets/web/core/clocks.js";
import { apart, forwardsFigure } from "../../assets/web/charts/specs.js";
import { Boxes, finestOf, stepsIn } from "../../assets/web/charts/marks.js";

import { forward, laneOf } from "./runs.js";

/** Forwards of these seconds, one after the other. @param {number[]} seconds */
function forwards(seconds) {
  let clock = 0;
  return seconds.map(
    (each, index) => /** @type {Step} */ (/** @type {unknown} */ ({ index, seconds: each, clock: (clock += each) })),
  );
}

/** @param {Json[]} shapes */
const paths = (shapes) => shapes.map(({ path }) => path);

test("what leaves room for a gap is not joined", () => {
  const boxes = new Boxes("red", 0, CLOCKS.seconds);
  for (const step of forwards([1, 1])) boxes.add(step, 0.1, 0, 2);
  assert.deepEqual(paths(boxes.shapes), ["M0.1,0H0.9V2H0.1ZM1.1,0H1.9V2H1.1Z"]);
  assert.deepEqual(new Boxes("red", 0, CLOCKS.seconds).shapes, []);
});

test("bars of one height are joined, and a gap that is finer than a pixel is closed", () => {
  const steps = forwards([1, 1, 1, 1, 1]);
  const drawn = (/** @type {number} */ gap) => {
    const boxes = new Boxes("red", gap, CLOCKS.seconds);
    [5, 5, 9, 5, 9].forEach((height, i) => boxes.add(steps[i], 0, 0, height));
    return paths(boxes.shapes);
  };
  assert.deepEqual(drawn(0), ["M0,0H2V5H0ZM2,0H3V9H2ZM3,0H4V5H3ZM4,0H5V9H4Z"]);
  assert.deepEqual(drawn(1.5), ["M0,0H4V5H0ZM2,0H5V9H2Z"]);
});

test("of few forwards everything can be seen; of many, what is zoomed is seen finer", () => {
  const few = forwards(Array(240).fill(0.01));
  assert.equal(finestOf(few, { from: 0, to: 2.4 }), 0);
  const many = forwards(Array(900).fill(0.01));
  const [whole, zoom] = [
    { from: 0, to: 9 },
    { from: 1, to: 2 },
  ];
  assert.equal(finestOf(many, whole), 0.01);
  const lane = /** @type {Lane} */ (/** @type {unknown} */ ({ steps: many }));
  assert.equal(finestOf(stepsIn(lane, zoom, CLOCKS.seconds), zoom), 0);
});

test("labels beside a chart stand near their values, in order, none over another", () => {
  assert.deepEqual(apart([10, 80], 100), [10, 80]);
  const close = apart([50, 52], 100);
  assert.ok(close[1] - close[0] >= 10 && close[0] < 50 && close[1] > 52);
  const [first, second, third] = apart([100, 100, 100], 112);
  assert.ok(first - second > 11 && second - third > 11);
  assert.ok(Math.min(...apart([0, 0], 100)) > 0);
});

test("in a bar what look-up gave wears its own colour, above the rest", () => {
  const lossless = { lossless: true, lookup: true };
  const rows = [
    forward(0, [[1, 0.9]], 1, "threshold", { looked_up: [2, 3] }),
    forward(1, [[2, 0.9], [3, 0.9], [4, 0.8]], 3, "block", { num_pending: 3, sources: "lla" }), // prettier-ignore
  ];
  const lane = laneOf(rows, { settings: lossless });
  const colours = { bars: ["one", "two", "three", "four", "five"], lookup: "copied", mars: "cap" };
  const { shapes } = forwardsFigure(lane, colours, { from: 0, to: 2 }, CLOCKS.passes, false).layout;
  const bars = shapes.filter(({ path }) => path); // the mean is a line
  assert.deepEqual(bars.map(({ fillcolor }) => fillcolor), ["one", "three", "copied", "cap"]); // prettier-ignore
  assert.match(shapes[2].path, /^M1.08,1H1.92V3/);
});
