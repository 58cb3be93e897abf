// Pure: a lane to plotly traces and layouts. No DOM, no Plotly; colours come in as `c`.

import { lastOf } from "../../core/lists.js";
import { runColours } from "../../core/run_colours.js";
import { short } from "../../core/words.js";
import { moveText } from "../text/card.js";
import { Boxes, Level, shapeOf } from "./shapes.js";

export const WINDOW = 240; // forwards shown while running; the whole run is shown at its end

/**
 * @param {Colours} c
 * @param {string} title
 * @param {Json} more
 * @returns {Json}
 */
export const axis = (c, title, more) => ({
  title: { text: title, standoff: 8, font: { size: 12, color: c.muted } },
  color: c.muted,
  gridcolor: c.grid,
  linecolor: c.line,
  zeroline: false,
  ticks: "outside",
  ticklen: 3,
  tickcolor: c.line,
  tickfont: { size: 11 },
  tickmode: "auto",
  nticks: 7,
  automargin: false,
  ticklabeloverflow: "allow",
  ...more,
});

/**
 * @param {Colours} c
 * @param {Json} xaxis
 * @param {Json} yaxis
 * @param {Json} more
 * @returns {Json}
 */
export const layout = (c, xaxis, yaxis, more) => ({
  margin: { l: 52, r: 38, t: 8, b: 40 },
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
  font: { family: c.font, size: 12, color: c.muted },
  showlegend: false,
  hovermode: "closest",
  dragmode: c.isCoarse ? false : "zoom",
  uirevision: "keep",
  modebar: { bgcolor: "rgba(0,0,0,0)", color: c.muted, activecolor: c.ink },
  hoverlabel: { bgcolor: c.card, bordercolor: c.line, font: { family: c.font, size: 12, color: c.ink } },
  xaxis,
  yaxis,
  ...more,
});

/**
 * @param {Lane} lane
 * @param {boolean} isLive
 */
const inWindow = (lane, isLive) => Math.max(0, isLive ? lane.steps.length - WINDOW : 0);

/**
 * The forwards that an axis spans, at least 24 so that a run's first bars are bars and not walls.
 * @param {Lane} lane
 * @param {number} from
 */
function forwardsRange(lane, from) {
  return [from + 0.4, Math.max(lane.steps.length, from + 24) + 0.6];
}

/**
 * Vertical lines where τ, B or the mode moved, with what moved written at the top.
 * @param {Lane} lane
 * @param {Colours} c
 * @param {number} from
 * @param {boolean} isNamed
 */
function moveMarks(lane, c, from, isNamed) {
  const moves = lane.moves.filter((move) => move.step >= from);
  /** @type {Json[]} */
  const shapes = moves.map((move) => ({
    type: "line",
    xref: "x",
    yref: "paper",
    x0: move.step + 0.5,
    x1: move.step + 0.5,
    y0: 0,
    y1: 1,
    line: { color: c.warm, width: 1, dash: "dot" },
  }));
  // A name needs room before the next one; of a dense row the last is named.
  const room = (lane.steps.length - from) * 0.1;
  /**
   * @param {Move} move
   * @param {number} i
   */
  const hasRoom = (move, i) => isNamed && (i === moves.length - 1 || moves[i + 1].step - move.step > room);
  /** @type {Json[]} */
  const annotations = moves.filter(hasRoom).map((move) => ({
    x: move.step + 0.5,
    y: 1,
    xref: "x",
    yref: "paper",
    text: moveText(move),
    showarrow: false,
    xanchor: "left",
    yanchor: "top",
    xshift: 3,
    font: { size: 11, color: c.warm },
  }));
  return { shapes, annotations };
}

const EMPTY = { type: "scatter", x: [null], y: [null], hoverinfo: "skip" }; // axes stand on a trace

/**
 * @param {Lane} lane
 * @param {Colours} c
 * @param {boolean} isLive
 */
export function forwardsFigure(lane, c, isLive) {
  const from = inWindow(lane, isLive);
  const bars = [1, 2, 3, 4, 5].map((n) => new Boxes(c.bars[n - 1]));
  const caps = new Boxes(c.mars);
  const steps = lane.steps.slice(from);
  const tallest = steps.reduce((most, step) => Math.max(most, step.count), 4);
  const half = steps.length > WINDOW ? 0.5 : 0.42; // of many no gap could be seen
  for (const step of steps) {
    bars[Math.min(step.count, 5) - 1].add(step, half, 0, step.count);
    if (step.count > 1) caps.add(step, half, step.count - tallest / 90, step.count);
  }
  const y = axis(c, "tokens accepted", {
    range: [0, tallest + 0.6],
    tickmode: "linear",
    tick0: 0,
    dtick: tallest > 8 ? 4 : 2,
  });
  const x = axis(c, "forward", { range: forwardsRange(lane, from), showgrid: false });
  const marks = moveMarks(lane, c, from, true);
  marks.shapes.unshift(...[...bars, caps].flatMap((boxes) => boxes.shapes));
  return { data: [EMPTY], layout: layout(c, x, y, marks) };
}

/**
 * @param {Lane} lane
 * @param {Colours} c
 * @param {boolean} isLive
 */
export function confidenceFigure(lane, c, isLive) {
  const from = inWindow(lane, isLive);
  const accepted = new Boxes(c.mars);
  const refused = new Boxes(c.warm);
  const threshold = new Level();
  /**
   * @param {Boxes} boxes
   * @param {Step} step
   * @param {number} value
   */
  const dash = (boxes, step, value) => boxes.add(step, 0.4, value - 0.008, value + 0.008);
  for (const step of lane.steps.slice(from)) {
    step.proposals.slice(0, step.count).forEach((p) => dash(accepted, step, p[1]));
    const next = step.stop === "threshold" && !step.lookedUp.length ? step.proposals[step.count + step.drafted] : null;
    if (next) dash(refused, step, next[1]);
    if (step.settings && step.settings.method !== "ar") threshold.hold(step.index, step.settings.tau);
  }
  const metric = (lane.settings && lane.settings.metric) || "probability";
  const y = axis(c, metric, { range: [-0.03, 1.06], tickmode: "linear", tick0: 0, dtick: 0.5 });
  const x = axis(c, "forward", { range: forwardsRange(lane, from), showgrid: false });
  const marks = moveMarks(lane, c, from, false);
  if (threshold.now !== null) {
    marks.annotations.push({
      ...endLabel(`τ ${short(threshold.now)}`, 1, threshold.now, c.warm),
      xref: "paper",
      xshift: 3,
    });
  }
  marks.shapes.unshift(
    ...accepted.shapes,
    ...refused.shapes,
    ...shapeOf(threshold.path, { line: { width: 1.5, color: c.warm, dash: "dash" } }),
  );
  return { data: [EMPTY], layout: layout(c, x, y, marks) };
}

/**
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {string} color
 * @param {string} [yanchor]
 */
const endLabel = (text, x, y, color, yanchor = "middle") => ({
  x,
  y,
  xref: "x",
  yref: "y",
  text,
  showarrow: false,
  xanchor: "left",
  yanchor,
  xshift: 4,
  font: { size: 12, color },
});

/**
 * Tokens against each lane's own measured clock, which starts when the prompt has been read.
 * @param {Lane[]} lanes
 * @param {Colours} c
 */
export function timeFigure(lanes, c) {
  let [longest, most] = [0.01, 10];
  const data = lanes.map((lane) => {
    const stride = Math.max(1, Math.ceil(lane.steps.length / 250));
    const kept = lane.steps.filter((step, i) => i % stride === 0 || i === lane.steps.length - 1);
    longest = Math.max(longest, kept.length ? lastOf(kept).clock : 0);
    most = Math.max(most, lane.tokens.length);
    const isTwin = lanes.indexOf(lane) > 0 && lanes[0].isMars === lane.isMars;
    return {
      type: "scatter",
      mode: "lines",
      x: [0, ...kept.map((s) => s.clock)],
      y: [0, ...kept.map((s) => s.first + s.count)],
      line: { shape: "hv", width: 2, color: c.runs[runColours.placeOf(lane)], dash: isTwin ? "dot" : "solid" },
      hovertemplate: `${lineName(lane, lanes)}: %{y} tokens after %{x:.3f} s<extra></extra>`,
    };
  });
  const annotations = data.map(({ x: xs, y: ys, line }, i) =>
    endLabel(lineName(lanes[i], lanes), lastOf(xs), lastOf(ys), line.color, lanes[i].isMars ? "bottom" : "top"),
  );
  const x = axis(c, "seconds of decoding", { range: [0, longest * 1.02], showgrid: false });
  const y = axis(c, "tokens", { range: [0, most * 1.12] });
  return {
    data,
    layout: layout(c, x, y, { annotations, shapes: [], margin: { l: 52, r: isRace(lanes) ? 62 : 100, t: 8, b: 40 } }),
  };
}

/** @param {Lane[]} lanes */
const isRace = (lanes) => lanes.length < 2 || lanes.some((lane) => lane.isMars !== lanes[0].isMars);

/**
 * The method, or where that tells two lanes not apart their titles, which plotly must not read as markup.
 * @param {Lane} lane
 * @param {Lane[]} lanes
 */
function lineName(lane, lanes) {
  if (isRace(lanes)) return lane.isMars ? "MARS" : "plain AR";
  return lane.title.slice(0, 16).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("%{", "% {");
}
