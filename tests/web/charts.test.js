import assert from "node:assert/strict";
import { test } from "node:test";

import { apart, escaped } from "../../assets/web/charts/plot.js";
import { passesFigure, timeFigure } from "../../assets/web/charts/specs.js";

import { arOf, forward, laneOf } from "./runs.js";

const COLOURS = { bars: ["own"], lookup: "copied", mars: "masks", ar: "grey", runs: ["grey", "masks", "violet"] };

test("labels beside a chart stand near their values, in order, none over another", () => {
  assert.deepEqual(apart([10, 80], 100), [10, 80]);
  const close = apart([50, 52], 100);
  assert.ok(close[1] - close[0] >= 10 && close[0] < 50 && close[1] > 52);
  const [first, second, third] = apart([100, 100, 100], 112);
  assert.ok(first - second > 11 && second - third > 11);
  assert.ok(Math.min(...apart([0, 0], 100)) > 0);
});

test("text of a model or visitor is no markup for Plotly", () => {
  assert.equal(escaped("<b>a & b</b> %{x}"), "&lt;b>a &amp; b&lt;/b> % {x}");
});

test("a bar has a part for each source of its tokens, and the means of both lanes are named", () => {
  const rows = [
    forward(0, [[1, 0.9]], 1, "threshold", { looked_up: [2, 3] }),
    forward(1, [[2, 0.9], [3, 0.9], [4, 0.8]], 3, "block", { num_pending: 3, sources: "lla" }), // prettier-ignore
  ];
  const { data, layout } = passesFigure(laneOf(rows, { settings: { lossless: true, lookup: true } }), COLOURS, true);
  const bars = Object.fromEntries(
    layout.shapes.filter(({ path }) => path).map(({ fillcolor, path }) => [fillcolor, path]),
  );
  assert.deepEqual(Object.keys(bars), ["own", "copied"]);
  assert.match(bars.own, /^M0.08,0H0.92V1.*M1.08,0H1.92V1/);
  assert.match(bars.copied, /^M1.08,1H1.92V2.*M1.08,2H1.92V3/);
  assert.deepEqual(layout.annotations.map(({ text }) => text), ["mean 2.00", "AR 1"]); // prettier-ignore
  assert.deepEqual(data[0].customdata, [0, 1]); // a click on a bar names its pass
});

test("every lane's line of tokens by time is named, three lanes too", () => {
  const lanes = [laneOf([forward(0, [[1, 0.9]], 1)]), arOf([1, 2]), arOf([1, 2, 3])];
  const { data, layout } = timeFigure(lanes, COLOURS);
  assert.equal(data.length, 3);
  assert.deepEqual(layout.annotations.map(({ text }) => text), lanes.map(({ title }) => title)); // prettier-ignore
  assert.equal(new Set(layout.annotations.map(({ y }) => y)).size, 3);
});
