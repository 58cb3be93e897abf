import assert from "node:assert/strict";
import { test } from "node:test";
import { curvesOf, marksOf, ownMark, ownWords, rangeOf } from "../../assets/web/views/frontier/chart.js";
import { END, arOf, forward, laneOf } from "./runs.js";

const exact = (value) => ({ value, low: value, high: value });
const point = (name, quality, tpf) => ({ name, settings: {}, quality, tpf: exact(tpf) });
const SET = {
  points: [
    point("AR", { value: 0.8, low: 0.7, high: 0.9 }, 1),
    point("bold", exact(0.6), 3),
    point("beaten", exact(0.5), 2),
  ],
};
const TEXT = [1, 2, 3, END];
const wrote = (text) => laneOf([forward(0, text.map((token) => [token, 0.9]), text.length, "eos")]); // prettier-ignore
const run = (...lanes) => ({ lanes });

test("ways stand at their percent and tokens per forward, the best are told", () => {
  const [ar, bold, beaten] = marksOf(SET);
  assert.deepEqual([ar.x, ar.y, ar.low, ar.high].map(Math.round), [1, 80, 70, 90]);
  assert.deepEqual([ar.isBest, bold.isBest, beaten.isBest], [true, true, false]);
});

test("the visitor's run stands where one answer can: at all or nothing", () => {
  assert.deepEqual(ownMark(run(wrote(TEXT), arOf(TEXT)), "agreement"), { x: 4, y: 100, place: -1, isSame: true });
  const other = ownMark(run(wrote([1, 2, 4, END]), arOf(TEXT)), "agreement");
  assert.deepEqual([other.x, other.y, other.place], [4, 0, 2]);
  assert.match(ownWords(other, "agreement"), /^Your run: .*not AR's text from token 3 on/);
  assert.match(ownWords(other, "agreement", "mars-tiny"), /^Your run on mars-tiny: /);
});

test("where nobody can tell its quality it is a line", () => {
  assert.ok(Number.isNaN(ownMark(run(wrote(TEXT), arOf(TEXT)), "accuracy").y));
  const alone = ownMark(run(wrote(TEXT)), "agreement");
  assert.ok(Number.isNaN(alone.y));
  assert.match(ownWords(alone, "agreement"), /no plain AR ran beside it/);
});

test("no run, a recorded one and one that goes on are none of the visitor's", () => {
  const going = laneOf([forward(0, [[1, 0.9]], 1, "block")], { end: "" });
  assert.equal(ownMark(undefined, "agreement"), null);
  assert.equal(ownMark({ ...run(wrote(TEXT)), recorded: true }, "agreement"), null);
  assert.equal(ownMark(run(going), "agreement"), null);
  assert.match(ownWords(null, "agreement"), /Run something/);
});

test("of the paper's curves those of B = 4", () => {
  const curves = [4, 8].map((block_size) => ({ block_size, points: [] }));
  assert.deepEqual(curvesOf({ curves }), [curves[0]]);
});

test("axes hold every point and begin and end on their steps", () => {
  const { right, bottom, top, step, share } = rangeOf([
    { x: 1, y: 71.7 },
    { x: 2.28, y: 78.8 },
    { x: 1.4, y: NaN },
  ]);
  assert.ok(right >= 2.28 && bottom <= 71.7 && top >= 78.8);
  assert.equal(bottom % share, 0);
  assert.equal(top % share, 0);
  assert.equal((right / step) % 1, 0);
  const wide = rangeOf([{ x: 1, y: 0 }, { x: 1.1, y: 100 }]); // prettier-ignore
  assert.deepEqual([wide.bottom, wide.top], [0, 100]);
});
