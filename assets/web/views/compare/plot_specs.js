// Pure: the compared lanes over each other as plotly traces and layouts. Runs are told apart by letter and by the kind
// of line; each wears the colour that it has everywhere.

import { axis, layout } from "../../charts/specs.js";
import { runColours } from "../../core/colours.js";
import { lastOf } from "../../core/folds.js";
import { LETTERS } from "./figures.js";

/** @type {[key: "time" | "forwards", title: string][]} */
export const PLOTS = [
  ["time", "Tokens against measured time, each run on its own clock"],
  ["forwards", "Tokens against forwards"],
];

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const POINTS = 400; // a line is drawn through so many forwards at most
const NEAR = 0.06; // of the height: labels closer than that stand one above the other

/** @type {Record<"time" | "forwards", { title: string, of: (step: Step) => number, unit: string }>} */
const AXES = {
  time: { title: "seconds of decoding", of: (step) => step.clock, unit: "s" },
  forwards: { title: "forwards", of: (step) => step.index + 1, unit: "forwards" },
};

/**
 * @param {"time" | "forwards"} key
 * @param {Lane[]} lanes
 * @param {Colours} c
 */
export function overlayFigure(key, lanes, c) {
  const { title, of, unit } = AXES[key];
  const data = lanes.map((lane, i) => {
    const stride = Math.max(1, Math.ceil(lane.steps.length / POINTS));
    const kept = lane.steps.filter((step, n) => n % stride === 0 || n === lane.steps.length - 1);
    return {
      type: "scatter",
      mode: "lines",
      name: LETTERS[i],
      x: [0, ...kept.map(of)],
      y: [0, ...kept.map((step) => step.first + step.count)],
      line: { shape: "hv", width: 2, dash: DASHES[i], color: c.runs[runColours.placeOf(lane)] },
      hovertemplate: `${LETTERS[i]}: %{y} tokens after %{x:${key === "time" ? ".3f" : "d"}} ${unit}<extra></extra>`,
    };
  });
  const farthest = Math.max(1e-3, ...data.map(({ x }) => lastOf(x)));
  const most = Math.max(1e-3, ...data.map(({ y }) => lastOf(y)));
  const x = axis(c, title, { range: [0, farthest * 1.05], showgrid: false });
  const y = axis(c, "tokens", { range: [0, most * 1.12] });
  return {
    data,
    layout: layout(c, x, y, {
      annotations: labels(data, farthest, most),
      shapes: [],
      margin: { l: 52, r: 30, t: 8, b: 40 },
    }),
  };
}

/**
 * @param {Json[]} data
 * @param {number} farthest
 * @param {number} most
 */
function labels(data, farthest, most) {
  const ends = data.map((trace) => ({ trace, x: trace.x.at(-1), y: trace.y.at(-1) })).sort((a, b) => a.y - b.y);
  let shift = 0;
  /** @type {{ x: number, y: number } | null} */
  let last = null;
  return ends.map((end) => {
    const isNear = last && (end.y - last.y) / most < NEAR && Math.abs(end.x - last.x) / farthest < NEAR;
    shift = isNear ? shift + 13 : 0;
    last = end;
    return {
      x: end.x,
      y: end.y,
      xref: "x",
      yref: "y",
      text: `<b>${end.trace.name}</b>`,
      showarrow: false,
      xanchor: "left",
      yanchor: "middle",
      xshift: 5,
      yshift: shift,
      font: { size: 12, color: end.trace.line.color },
    };
  });
}
