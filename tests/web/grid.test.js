import assert from "node:assert/strict";
import { test } from "node:test";
import { acrossOf, agreement, cellLines, gridFinding, isDone, parting, percent } from "../../assets/web/folds/grid.js";
import { scatterFigure } from "../../assets/web/views/grid/figures.js";
import { END, PLAIN, arOf, forward, laneOf } from "./runs.js";

const TEXT = [1, 2, 3, 5, 6, 7, END];
const timed = (kind, ratio) => ({ kind, ratio, low: ratio && ratio - 0.1, high: ratio && ratio + 0.1, limit: 1.75, rounds: 3, rate: [7, 6, 8] }); // prettier-ignore
const ar = { name: "ar", row: null, blockSize: 0, lane: arOf(TEXT), rounds: timed("same", 1) };
const cell = (lane, more = {}) => ({ name: "r0c0", row: { tau: 0.9, lossless: false }, blockSize: 2, rounds: null, lane, ...more }); // prettier-ignore
const plain = laneOf(PLAIN);
const other = laneOf([forward(0, [[1, 1], [2, 1], [9, 1], [END, 1]], 4, "eos")]); // prettier-ignore

test("agreement is the share before the first difference, and not known before both are whole", () => {
  assert.deepEqual(parting(plain, ar.lane), { place: -1, isSame: true });
  assert.equal(agreement(plain, ar.lane), 1);
  assert.equal(agreement(other, ar.lane), 2 / 7);
  assert.equal(agreement(arOf([1, 2, END]), ar.lane), 2 / 7);
  assert.ok(Number.isNaN(agreement(arOf([1, 2], { end: "" }), ar.lane)));
  assert.equal(isDone(laneOf(PLAIN, { end: "cancelled" })), false);
  assert.equal(percent(0.999), "99 %");
});

test("a cell names the first different words of both texts", () => {
  const lines = cellLines(cell(other), ar);
  assert.match(lines.at(-2), /token 3: “i”/);
  assert.match(lines.at(-1), /“cefg”/);
  const timedLines = [other, plain].map((lane) => cellLines(cell(lane, { rounds: timed("faster", 1.5) }), ar).join());
  assert.deepEqual(timedLines.map((text) => / times as fast/.test(text)), [false, true]); // prettier-ignore
});

test("a cell has a place by speed only if it was timed", () => {
  assert.equal(acrossOf(cell(plain, { rounds: timed("same", 1.1) }), true).value, 1.1);
  assert.equal(acrossOf(cell(plain, { rounds: timed("faster", 1.5) }), true).value, 1.5);
  for (const kind of ["busy", "short"])
    assert.ok(Number.isNaN(acrossOf(cell(plain, { rounds: timed(kind, null) }), true).value));
  assert.equal(acrossOf(cell(plain), false).value, 7 / 4);
  assert.equal(acrossOf(ar, true).value, 1);
});

test("the finding is about AR's text: the lossless cell, or the one with the fewest passes", () => {
  const slow = cell(laneOf([...PLAIN.slice(0, 3), forward(5, [[7, 0.9]], 1, "threshold"), forward(6, [[END, 0.9]], 1, "eos")]), { blockSize: 8 }); // prettier-ignore
  assert.match(gridFinding([slow, cell(plain)], ar), /B 2: 4 passes instead of 7/);
  const exact = { ...slow, row: { tau: 0.3, lossless: true } };
  assert.match(gridFinding([cell(plain), exact], ar), /B 8: 5 passes instead of 7/);
  assert.equal(gridFinding([], ar), "");
  assert.notEqual(gridFinding([cell(other)], ar), "");
  assert.equal(gridFinding([cell(other), cell(laneOf([], { end: "" }))], ar), "");
});

test("the chart has every finished cell, and text in it is no markup", () => {
  const colours = { bars: [], page: "", mars: "", ar: "", lookup: "", muted: "" };
  const markup = laneOf(PLAIN, { header: { vocabulary: { 1: "<b>", 2: "b", 3: "c", 5: "e", 6: "f", 7: "g" } } });
  const lookup = { ...ar, name: "lookup", lane: laneOf([], { end: "" }) };
  const rows = [[cell(plain), cell(markup), cell(laneOf([], { end: "" }))]];
  const apart = { ...ar, lane: arOf([2, 2]) };
  const { data } = scatterFigure({ rows, references: [apart, lookup], points: [], isSpeed: false }, colours);
  assert.deepEqual(data.map(({ x }) => x.length), [0, 1, 0, 2]); // prettier-ignore
  assert.ok(data[3].hovertext[1].includes("&lt;b>"));
});
