import assert from "node:assert/strict";
import { test } from "node:test";

import { CLOCKS } from "../../assets/web/core/clocks.js";
import { apart, confidenceFigure, forwardsFigure } from "../../assets/web/charts/specs.js";
import { Boxes, Dashes, finestOf, stepsIn } from "../../assets/web/charts/marks.js";

import { forward, laneOf } from "./runs.js";

const ALL = { time: 0, height: 0 };

/** Forwards of these seconds, one after the other. @param {number[]} seconds */
function forwards(seconds) {
  let clock = 0;
  return seconds.map(
    (each, index) => /** @type {Step} */ (/** @type {unknown} */ ({ index, seconds: each, clock: (clock += each) })),
  );
}

/** @param {Json[]} shapes */
const paths = (shapes) => shapes.map(({ path }) => path);

test("a height that is held goes on as one dash, and one that is left and taken again is two", () => {
  const dashes = new Dashes({ width: 2 }, ALL, CLOCKS.seconds);
  const steps = forwards([1, 1, 1, 1]);
  [5, 5, 7, 5].forEach((height, i) => dashes.hold(steps[i], height));
  assert.deepEqual(paths(dashes.shapes), ["M0,5H2M2,7H3M3,5H4"]);
  assert.deepEqual(dashes.shapes[0].line, { width: 2 });
});

test("what leaves room for a gap is not joined", () => {
  const boxes = new Boxes("red", ALL, CLOCKS.seconds);
  for (const step of forwards([1, 1])) boxes.add(step, 0.1, 0, 2);
  assert.deepEqual(paths(boxes.shapes), ["M0.1,0H0.9V2H0.1ZM1.1,0H1.9V2H1.1Z"]);
  assert.deepEqual(new Boxes("red", ALL, CLOCKS.seconds).shapes, []);
});

test("of what is finer than a pixel, heights are rounded and gaps closed", () => {
  const dashes = new Dashes({ width: 2 }, { time: 1.5, height: 0.5 }, CLOCKS.seconds);
  const steps = forwards([1, 1, 1, 1, 1]);
  [5.1, 9, 4.9, 9.2, 9.3].forEach((height, i) => dashes.hold(steps[i], height));
  assert.deepEqual(paths(dashes.shapes), ["M0,5H3M1,9H4M4,9.5H5"]);
});

test("of few forwards everything can be seen; of many, what is zoomed is seen finer", () => {
  const few = forwards(Array(240).fill(0.01));
  assert.deepEqual(finestOf(few, { from: 0, to: 2.4 }, 300), ALL);
  const many = forwards(Array(900).fill(0.01));
  const [whole, zoom] = [
    { from: 0, to: 9 },
    { from: 1, to: 2 },
  ];
  assert.deepEqual(finestOf(many, whole, 300), { time: 0.01, height: 2 });
  const lane = /** @type {Lane} */ (/** @type {unknown} */ ({ steps: many }));
  assert.deepEqual(finestOf(stepsIn(lane, zoom, CLOCKS.seconds), zoom, 300), ALL);
});

test("labels beside a chart stand near their values, in order, none over another", () => {
  assert.deepEqual(apart([10, 80], 100), [10, 80]);
  const close = apart([50, 52], 100);
  assert.ok(close[1] - close[0] >= 10 && close[0] < 50 && close[1] > 52);
  const [first, second, third] = apart([100, 100, 100], 112);
  assert.ok(first - second > 11 && second - third > 11);
  assert.ok(Math.min(...apart([0, 0], 100)) > 0);
});

test("each token's confidence wears the look of who proposed it", () => {
  const masks = { lossless: true, lookup: false };
  const rows = [
    forward(0, [[1, 0.9], [2, 0.9], [3, 0.8]], 1, "threshold", { num_drafted: 2 }), // prettier-ignore
    forward(1, [[2, 0.5], [3, 0.9], [4, 0]], 3, "block", { num_pending: 3, sources: "mma" }), // prettier-ignore
  ];
  const colours = { mars: "masks", ar: "own", lookupLine: "copied", warm: "refused" };
  /** @type {(rows: Json[], settings: Json) => [string, string | undefined, number][]} */
  const drawn = (rows, settings) =>
    confidenceFigure(laneOf(rows, { settings }), colours, { from: 0, to: 2 }, CLOCKS.passes)
      .layout.shapes.filter(({ line }) => line.width === 2.5 && line.color !== "refused")
      .map(({ line, path }) => [line.color, line.dash, path.split("M").length - 1]);
  assert.deepEqual(drawn(rows, masks), [["own", undefined, 2], ["masks", undefined, 2]]); // prettier-ignore
  const copied = [
    { ...rows[0], looked_up: [2, 3] },
    { ...rows[1], sources: "lla" },
  ];
  assert.deepEqual(drawn(copied, { ...masks, lookup: true }), [["own", undefined, 2], ["copied", "dot", 2]]); // prettier-ignore
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
