// Builds the Plotly data and layouts of the race's charts: tokens of each pass, and tokens by time. Colours are passed as
// `c`. Pure; no DOM.

import { runColours } from "../core/colours.js";
import { folds, lastOf, photoFinish, thinned } from "../core/folds.js";
import { figure } from "../core/words.js";
import { moveText } from "../text/settings.js";
import { breakEven } from "../core/result.js";
import { Boxes, finestOf, stepsIn } from "./marks.js";

/** @type {(c: Colours, title: string, more: Json) => Json} */
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

/** @type {(c: Colours, span: Span, clock: Clock) => Json} */
const clockAxis = (c, { from, to }, clock) => axis(c, clock.axis, { range: [from, to], showgrid: false });

/** @type {(c: Colours, xaxis: Json, yaxis: Json, more: Json) => Json} */
export const layout = (c, xaxis, yaxis, more) => ({
  margin: { l: 56, r: 92, t: 8, b: 36 }, // the same for all charts, so that their time axes are aligned
  paper_bgcolor: c.page, // not transparent, for the picture that Plotly's camera button saves
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
 * @param {number} time
 * @param {string} color
 */
const momentLine = (time, color) => ({
  type: "line",
  xref: "x",
  yref: "paper",
  x0: time,
  x1: time,
  y0: 0,
  y1: 1,
  line: { color, width: 1, dash: "dot" },
});

/**
 * Returns vertical lines at the times when settings were changed during the run, with labels at the top.
 * @param {Lane} lane
 * @param {Colours} c
 * @param {Span} span
 * @param {Clock} clock
 */
function moveMarks(lane, c, span, clock) {
  /** @param {Move} move */
  const at = (move) => clock.begin(lane.steps[move.step]);
  const moves = lane.moves.filter((move) => at(move) >= span.from);
  /** @type {Json[]} */
  const shapes = moves.map((move) => momentLine(at(move), c.warm));
  // A change of settings is labelled only if there is enough space before the next change.
  const labelWidth = (span.to - span.from) * 0.1;
  /** @type {(move: Move, i: number) => boolean} */
  const isLabelled = (move, i) => i === moves.length - 1 || at(moves[i + 1]) - at(move) > labelWidth;
  /** @type {(move: Move) => Json} a label near the right end of the chart is placed to the left of its line */
  const side = (move) =>
    at(move) - span.from > 0.7 * (span.to - span.from) ? { xanchor: "right", xshift: -3 } : { xshift: 3 };
  /** @type {Json[]} */
  const annotations = moves.filter(isLabelled).map((move) => ({
    ...endLabel(moveText(move), at(move), 1, c.warm, "top"),
    yref: "paper",
    font: { size: 11, color: c.warm },
    ...side(move),
  }));
  return { shapes, annotations };
}

const EMPTY = { type: "scatter", x: [null], y: [null], hoverinfo: "skip" }; // Plotly draws axes only if there is a trace

const ROOM = 0.35; // share of the axis that the label of two lines needs

/**
 * Returns a line at the time when the faster lane ended, with a label that gives the slower lane's number of tokens at
 * that time.
 * @param {Lane[]} lanes
 * @param {Colours} c
 * @param {Span} span
 * @param {Clock} clock
 * @returns {{ shapes: Json[], annotations: Json[] }}
 */
function finishMarks(lanes, c, span, clock) {
  const finish = photoFinish(lanes, clock);
  if (!finish) return { shapes: [], annotations: [] };
  const { time, first, other, tokens } = finish;
  const [firstName, otherName] = [lineName(first, lanes), lineName(other, lanes)];
  const label = endLabel(
    `${firstName} finished, <br>${otherName} at ${tokens}`,
    time,
    0.02,
    laneColour(other, c),
    "bottom",
  );
  const fitsLeft = time - span.from > ROOM * (span.to - span.from);
  // The label is at the bottom, where no curve ends.
  const placed = { xanchor: fitsLeft ? "right" : "left", xshift: fitsLeft ? -4 : 4, yref: "paper" };
  return { shapes: [momentLine(time, laneColour(first, c))], annotations: [{ ...label, ...placed }] };
}

/**
 * Returns a horizontal line at y, and a label to the right of the chart at `height`.
 * @type {(y: number, height: number, text: string, color: string, dash: string) => { shape: Json, label: Json }}
 */
const levelLine = (y, height, text, color, dash) => ({
  shape: { type: "line", xref: "paper", yref: "y", x0: 0, x1: 1, y0: y, y1: y, line: { color, width: 1.5, dash } },
  label: { ...endLabel(text, 1, height, color), ...BESIDE, font: { size: 10, color } },
});

/**
 * Returns a line at the mean number of tokens per pass and, if plain AR ran too, a line at the break-even: the mean at
 * which the lane is as fast as AR.
 * @param {Lane} lane
 * @param {Lane | undefined} ar
 * @param {Colours} c
 * @param {number} top value at the top of the chart
 */
function meanLines(lane, ar, c, top) {
  const [mean, even] = [folds.perForward(lane), ar ? breakEven(lane, ar) : NaN];
  if (!Number.isFinite(mean)) return { shapes: [], annotations: [] };
  const hasEven = Number.isFinite(even) && even < top;
  const heights = apart(hasEven ? [mean, even] : [mean], top * 1.3);
  const lines = [levelLine(mean, heights[0], `mean ${figure(mean)}`, c.mars, "solid")];
  if (hasEven) lines.push(levelLine(even, heights[1], `break-even ${figure(even)}`, c.ar, "dot"));
  return { shapes: lines.map(({ shape }) => shape), annotations: lines.map(({ label }) => label) };
}

/**
 * Returns the chart of tokens per pass: a bar for each pass, coloured by its number of tokens; tokens of prompt lookup
 * have a separate colour. seen: the visible part of the span; bars outside it are left out. ar: the plain AR lane of
 * the race.
 * @param {Lane} lane
 * @param {Colours} c
 * @param {Span} span
 * @param {Clock} clock
 * @param {boolean} isLive
 * @param {Span} [seen]
 * @param {Lane} [ar]
 */
export function forwardsFigure(lane, c, span, clock, isLive, seen = span, ar = undefined) {
  const steps = stepsIn(lane, span, clock);
  const near = stepsIn(lane, seen, clock);
  const finest = finestOf(near, seen);
  const bars = [1, 2, 3, 4, 5].map((n) => new Boxes(c.bars[n - 1], finest, clock));
  const copied = new Boxes(c.lookup, finest, clock);
  const caps = new Boxes(c.mars, finest, clock);
  const tallest = steps.reduce((most, step) => Math.max(most, step.count), isLive ? 4 : 2);
  const free = finest ? 0 : 0.08;
  for (const step of near) {
    if (!step.count) continue; // a pass of block diffusion can fill positions without emitting tokens
    bars[Math.min(step.count, 5) - 1].add(step, free, 0, step.count);
    const num = step.sources.filter((source) => source === "look-up").length;
    if (num) copied.add(step, free, step.count - num, step.count);
    if (step.count > 1) caps.add(step, free, step.count - tallest / 90, step.count);
  }
  const y = axis(c, "tokens", {
    range: [0, tallest + 0.6],
    tickmode: "linear",
    tick0: 0,
    dtick: tallest > 8 ? 4 : tallest > 3 ? 2 : 1,
  });
  const marks = moveMarks(lane, c, span, clock);
  const means = meanLines(lane, ar, c, tallest + 0.6);
  marks.shapes.unshift(...[...bars, copied, caps].flatMap((boxes) => boxes.shapes));
  marks.shapes.push(...means.shapes);
  marks.annotations.push(...means.annotations);
  return { data: [EMPTY], layout: layout(c, clockAxis(c, span, clock), y, marks) };
}

const BESIDE = { xref: "paper", xshift: 3 }; // position of a label to the right of the chart

/** @type {(text: string, x: number, y: number, color: string, yanchor?: string) => Json} */
export const endLabel = (text, x, y, color, yanchor = "middle") => ({
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

const LABEL = 0.15; // height of a label as a share of the chart's height

/**
 * Returns the heights of labels next to a chart: near their values, in the same order, and without overlap.
 * @param {number[]} values
 * @param {number} top value at the top of the chart
 */
export function apart(values, top) {
  const order = values.map((_, i) => i).sort((a, b) => values[a] - values[b] || b - a); // of equal values, the first is on top
  const [placed, labelHeight] = [[...values], LABEL * top];
  order.forEach((at, k) => {
    if (k) placed[at] = Math.max(placed[at], placed[order[k - 1]] + labelHeight);
  });
  const raised = placed.reduce((sum, y, i) => sum + y - values[i], 0) / values.length;
  const shift = Math.min(raised, Math.min(...placed) - labelHeight / 2); // so that no label is below the chart
  return placed.map((y) => y - shift);
}

/**
 * Returns the chart of tokens by time, with a line for each lane on the given clock, which starts after prefill.
 * @param {Lane[]} lanes
 * @param {Colours} c
 * @param {Span} span
 * @param {Clock} clock
 */
export function timeFigure(lanes, c, span, clock) {
  let most = 10;
  const data = lanes.map((lane) => {
    const drawn = thinned(lane.steps, 250);
    most = Math.max(most, lane.tokens.length);
    const isTwin = lanes.indexOf(lane) > 0 && lanes[0].method === lane.method;
    return {
      type: "scatter",
      mode: "lines",
      x: [0, ...drawn.map((step) => clock.end(step))],
      y: [0, ...drawn.map((step) => step.first + step.count)],
      line: { shape: "hv", width: 2, color: laneColour(lane, c), dash: isTwin ? "dot" : "solid" },
      hoverinfo: "skip", // the pass's card shows the values
    };
  });
  const heights = apart(data.map(({ y }) => lastOf(y)), most * 1.12); // prettier-ignore
  const annotations = data.map(({ line }, i) => ({
    ...endLabel(lineName(lanes[i], lanes), 1, heights[i], line.color),
    ...BESIDE,
  }));
  const y = axis(c, "tokens", { range: [0, most * 1.12] });
  const finish = finishMarks(lanes, c, span, clock);
  const more = { annotations: [...annotations, ...finish.annotations], shapes: finish.shapes };
  return { data, layout: layout(c, clockAxis(c, span, clock), y, more) };
}

/** @type {(lane: Lane, c: Colours) => string} */
const laneColour = (lane, c) => c.runs[runColours.placeOf(lane)];

/** @param {Lane[]} lanes */
const isRace = (lanes) => lanes.length < 2 || lanes.some((lane) => lane.method !== lanes[0].method);

/**
 * Returns the name of a lane in a chart: its method's title or, if all lanes have the same method, its own title,
 * escaped for Plotly.
 * @param {Lane} lane
 * @param {Lane[]} lanes
 */
function lineName(lane, lanes) {
  if (isRace(lanes)) return lane.facts.title;
  return lane.title.slice(0, 10).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("%{", "% {");
}
