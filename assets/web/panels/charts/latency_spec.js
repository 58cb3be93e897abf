// Pure: what one forward took, MARS against plain AR, as a plotly figure. Every forward is a dash as long as it took.

import { figure } from "../../core/words.js";
import { EMPTY, axis, endLabel, finishMarks, laneColour, layout } from "./chart_specs.js";
import { Dashes } from "./shapes.js";
import { finestOf, stepsIn } from "./span.js";

const MOST = 4; // times the middle one: what took longer would press all others to the ground
const THICK = 2; // pixels of a dash
const NEAR = 0.12; // of the height: labels closer than that stand above and below

/** @param {number[]} numbers */
const middle = (numbers) => [...numbers].sort((a, b) => a - b)[numbers.length >> 1] ?? 0;

/** @param {Step} step */
const took = (step) => step.seconds * 1000;

/**
 * @param {Lane[]} lanes
 * @param {Colours} c
 * @param {Span} span
 * @param {Span} [seen]
 * @returns {Figure}
 */
export function latencyFigure(lanes, c, span, seen = span) {
  const each = lanes.map((lane) => stepsIn(lane, span));
  const all = each.flat().map(took);
  const [longest, most] = [Math.max(0.01, ...all), MOST * middle(all)];
  const top = 1.12 * (longest > most ? most : longest);
  const shapes = lanes.flatMap((lane) => {
    const near = stepsIn(lane, seen);
    const dashes = new Dashes({ width: THICK, color: laneColour(lane, c) }, finestOf(near, seen, THICK * top));
    near.forEach((step) => dashes.hold(step, took(step)));
    return dashes.shapes;
  });
  const middles = each.map((steps) => middle(steps.map(took)));
  const isNear = middles.length === 2 && Math.abs(middles[0] - middles[1]) < NEAR * top;
  const labels = lanes.map((lane, i) => {
    const isUpper = middles[i] >= Math.max(...middles);
    const side = isNear ? (isUpper ? "bottom" : "top") : "middle";
    return {
      ...endLabel(`${figure(middles[i])} ms`, 1, middles[i], laneColour(lane, c), side),
      xref: "paper",
      xshift: 3,
    };
  });
  const cut = longest > top ? [cutLabel(`the longest took ${figure(longest)} ms`, c)] : [];
  const x = axis(c, "seconds of decoding", { range: [span.from, span.to], showgrid: false });
  const y = axis(c, "milliseconds", { range: [0, top], nticks: 5 });
  const marks = finishMarks(lanes, c);
  const more = {
    shapes: [...shapes, ...marks.shapes],
    annotations: [...labels.filter((_, i) => each[i].length), ...cut],
  };
  return { data: [EMPTY], layout: layout(c, x, y, more) };
}

/**
 * @param {string} text
 * @param {Colours} c
 */
const cutLabel = (text, c) => ({
  ...endLabel(text, 1, 1, c.muted, "top"),
  xref: "paper",
  yref: "paper",
  xanchor: "right",
  xshift: 0,
  font: { size: 11, color: c.muted },
});
