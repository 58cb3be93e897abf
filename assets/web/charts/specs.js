// The two figures of a race: tokens of each pass of the main lane, and tokens by measured time of every lane. Colours
// are passed as `c`. Pure; no DOM.

import { runColours } from "../core/colours.js";
import { folds, thinned } from "../core/folds.js";
import { upToLoop } from "../core/loops.js";
import { SOURCES } from "../core/sources.js";
import { figure } from "../core/words.js";
import { moveText } from "../text/settings.js";
import { apart, axis, label, layout } from "./plot.js";

const LEAST = 24; // minimum number of passes on the axis, so that the first bars are not too wide
const MOST = 250; // maximum number of points of a line
const BESIDE = { xref: "paper", xshift: 4 }; // position of a label to the right of the figure
const RIGHT = { margin: { l: 52, r: 94, t: 8, b: 38 } };

/** @type {(c: Colours, mark: string) => string} */
const colourOf = (c, mark) =>
  ({ ar: c.bars[0], masks: c.mars, lookup: c.lookup, draft: c.runs[4], guess: c.runs[3] })[mark] ?? c.mars;

/**
 * Returns the bars of tokens per pass as one path for each source of tokens: Plotly would draw an element for each bar.
 * @param {Step[]} steps @param {Colours} c
 */
function bars(steps, c) {
  /** @type {Record<string, string>} */
  const paths = {};
  const margin = steps.length > 120 ? 0 : 0.08;
  for (const { index, sources } of steps) {
    const sorted = [...sources].sort((a, b) => Number(b === "ar") - Number(a === "ar"));
    sorted.forEach((source, i) => {
      const { mark } = SOURCES[source];
      paths[mark] = `${paths[mark] ?? ""}M${index + margin},${i}H${index + 1 - margin}V${i + 1}H${index + margin}Z`;
    });
  }
  const style = { type: "path", xref: "x", yref: "y", line: { width: 0 } };
  return Object.entries(paths).map(([mark, path]) => ({ ...style, path, fillcolor: colourOf(c, mark) }));
}

/** @type {(y: number, color: string, dash: string) => Json} a horizontal line */
const level = (y, color, dash) => ({
  ...{ type: "line", xref: "paper", yref: "y", x0: 0, x1: 1, y0: y, y1: y },
  line: { color, width: 1.5, dash },
});

/** @type {(x: number, color: string) => Json} a vertical line */
const moment = (x, color) => ({
  ...{ type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1 },
  line: { color, width: 1, dash: "dot" },
});

/**
 * Returns the figure of tokens per pass. Vertical lines mark changes of settings.
 * @param {Lane} lane @param {Colours} c
 * @param {boolean} hasAr whether plain AR, which writes one token per pass, runs too
 * @param {boolean} [hasMean]
 */
export function passesFigure(lane, c, hasAr, hasMean = true) {
  const { moves } = lane;
  const { steps } = upToLoop(lane);
  const tallest = steps.reduce((most, { count }) => Math.max(most, count), 4) + 0.4;
  const mean = folds.perForward(lane);
  const [heights, last] = [apart([mean, 1], tallest), moves.at(-1)];
  const colour = c.runs[runColours.placeOf(lane)];
  const [lines, texts] = [/** @type {Json[]} */ ([]), /** @type {Json[]} */ ([])];
  if (hasMean && Number.isFinite(mean)) {
    lines.push(level(mean, colour, "solid"));
    texts.push(label(`mean ${figure(mean)}`, 1, heights[0], colour, BESIDE));
  }
  if (hasAr && steps.length) {
    lines.push(level(1, c.ar, "dot"));
    texts.push(label("AR 1", 1, texts.length ? heights[1] : 1, c.ar, BESIDE));
  }
  if (last)
    texts.push(
      label(moveText(last), last.step, 1, c.warm, {
        yref: "paper",
        yanchor: "top",
        bgcolor: c.page,
        ...side(last.step, steps),
      }),
    );
  const points = thinned(steps, MOST);
  const data = [
    {
      ...{ type: "scatter", mode: "markers", marker: { opacity: 0, size: 9 } },
      x: points.map(({ index }) => index + 0.5),
      y: points.map(({ count }) => count),
      customdata: points.map(({ index }) => index),
      hovertemplate: points.map(({ index, count }) => `pass ${index + 1}: ${count}<extra></extra>`),
    },
  ];
  const x = axis(c, "forward passes", { range: [0, Math.max(LEAST, steps.length)], showgrid: false });
  const y = axis(c, "tokens", { range: [0, tallest], dtick: tallest > 8 ? 4 : 2, tick0: 0, tickmode: "linear" });
  const shapes = [...bars(steps, c), ...lines, ...moves.map((move) => moment(move.step, c.warm))];
  return { data, layout: layout(c, x, y, { ...RIGHT, shapes, annotations: texts }) };
}

/** @type {(at: number, steps: Step[]) => Json} on which side of a vertical line its label is */
const side = (at, steps) => (at > 0.6 * Math.max(LEAST, steps.length) ? { xanchor: "right", xshift: -4 } : {});

/** @param {Lane[]} all @param {Colours} c */
export function timeFigure(all, c) {
  const lanes = all.map(upToLoop);
  const most = 1.1 * Math.max(10, ...lanes.map(({ tokens }) => tokens.length));
  const longest = Math.max(0.01, ...lanes.map(({ steps }) => steps.at(-1)?.clock ?? 0));
  const colours = lanes.map((lane) => c.runs[runColours.placeOf(lane)]);
  const data = lanes.map((lane, i) => {
    const drawn = thinned(lane.steps, MOST);
    const isTwin = i > 0 && lanes[0].method === lane.method;
    return {
      ...{ type: "scatter", mode: "lines", name: lane.title },
      x: [0, ...drawn.map(({ clock }) => clock)],
      y: [0, ...drawn.map(({ first, count }) => first + count)],
      line: { shape: "hv", width: 2, color: colours[i], dash: isTwin ? "dot" : "solid" },
      hovertemplate: "%{y} tokens at %{x:.2f} s<extra></extra>",
    };
  });
  const heights = apart(
    lanes.map(({ tokens }) => tokens.length),
    most,
  );
  const annotations = lanes.map(({ title }, i) => label(short(title), 1, heights[i], colours[i], BESIDE));
  const x = axis(c, "seconds of decoding", { range: [0, longest], showgrid: false });
  const y = axis(c, "tokens", { range: [0, most] });
  return { data, layout: layout(c, x, y, { ...RIGHT, annotations }) };
}

/** @param {string} title */
const short = (title) => (title.length > 11 ? `${title.slice(0, 10)}…` : title);
