// The charts of a load test.

import { Plots, chartFrame } from "../../charts/plots.js";
import { axis, layout } from "../../charts/specs.js";
import { coloursOf } from "../../core/colours.js";
import { LOAD_ORDER } from "../../core/table.js";
import { curveOf, endOf, steps, throughput } from "../../folds/load.js";

export class LoadPlots extends Plots {
  /** @type {LoadModel | null} */
  model = null;
  isFull = false;

  /**
   * @param {HTMLElement} root
   * @param {HTMLElement} element
   */
  constructor(root, element) {
    const charts = CHARTS.map(([key, , title]) => chartFrame(key, title));
    super(root, element, charts, { figure: (key, frame) => this.figureOf(key, frame), rest: "the figures are" });
  }

  /**
   * @param {LoadModel} model
   * @param {boolean} isFull whether the controller's charts are shown too
   */
  renew(model, isFull) {
    Object.assign(this, { model, isFull });
    CHARTS.forEach(([, question], i) => (this.charts[i].frame.hidden = !isShown(model, question, isFull)));
    return this.show();
  }

  /**
   * @param {string} key
   * @param {HTMLElement} frame
   */
  figureOf(key, frame) {
    const { model } = this;
    if (!model || frame.hidden || !frame.isConnected) return null;
    const c = coloursOf(this.root);
    return loadFigure(key, model, c);
  }
}

const DASHES = ["solid", "solid", "dash", "dot", "dashdot", "longdash"]; // line styles, by method index in LOAD_ORDER

/** @type {[key: string, question: string, title: string][]} */
export const CHARTS = [
  ["rate", "compare", "Throughput of all requests"],
  ["open", "compare", "Unfinished requests (dotted line: slots)"],
  ["tau", "follow", "τ chosen by the controller"],
  ["size", "draft", "B chosen by the controller"],
  ["answered", "curve", "Requests answered per second, by requests offered"],
  ["waits", "curve", "Time to first token (p99), by requests offered"],
];

/**
 * Returns whether a load test has data for the charts of a question: it is about this question, or it compares ways to
 * control τ and B ("compare") and has measured this one.
 * @param {LoadModel} model
 * @param {string} question
 */
export const isFor = ({ head, ways }, question) =>
  question === head.question || (head.question === "compare" && ways.some(({ name }) => name === question));

/**
 * Returns whether a chart is shown. Charts of a controller are shown only together with all figures.
 * @param {LoadModel} model
 * @param {string} question
 * @param {boolean} isFull
 */
export const isShown = (model, question, isFull) =>
  isFor(model, question) && (isFull || question === model.head.question);

/**
 * @param {string} key
 * @param {LoadModel} model
 * @param {Colours} c
 * @returns {Figure}
 */
export function loadFigure(key, model, c) {
  const end = endOf(model);
  if (key === "answered" || key === "waits") return curveFigure(key, model, c);
  if (key === "rate") return figureOf(model, c, "tokens/s", (way) => throughput(way.ticks), "linear");
  if (key === "tau" || key === "size") {
    const name = key === "tau" ? "follow" : "draft";
    const decided = model.ways.filter((way) => way.name === name);
    const of = (/** @type {LoadWay} */ way) => steps(way.decisions, end);
    const figure = figureOf({ ...model, ways: decided }, c, key === "tau" ? "τ" : "B", of, "hv", end);
    return { ...figure, data: figure.data.map((each, i) => marked(each, decided[i].decisions)) };
  }
  const of = (/** @type {LoadWay} */ way) => way.ticks.map(({ at, rows, queue }) => ({ x: at, y: rows + queue }));
  const figure = figureOf(model, c, "requests", of, "hv");
  const places = model.about?.places ?? 0;
  if (places && places <= figure.layout.yaxis.range[1])
    figure.layout.shapes = [{ ...line(c), xref: "paper", x0: 0, x1: 1, y0: places, y1: places }];
  return figure;
}

/**
 * @param {LoadModel} model
 * @param {Colours} c
 * @param {string} title
 * @param {(way: LoadWay) => { x: number, y: number }[]} of
 * @param {string} shape
 * @param {number} [end]
 */
function figureOf(model, c, title, of, shape, end = endOf(model)) {
  const data = model.ways.map((way) => trace(way, of(way), c, shape));
  const most = Math.max(...data.flatMap(({ y }) => y), 0) || 1;
  const x = axis(c, "seconds from the start", { range: [0, end * 1.03], showgrid: false });
  const whole = title === "requests" && most < 7 ? { dtick: 1, tickmode: "linear" } : { nticks: 5 };
  const y = axis(c, title, { range: [0, most * 1.12], ...whole });
  return { data, layout: layout(c, x, y, { margin: { l: 52, r: 16, t: 8, b: 40 } }) };
}

/**
 * Adds a marker for each decision to a line. The marker's label shows the queue that the controller observed.
 * @param {Json} line
 * @param {LoadDecision[]} decisions
 */
const marked = (line, decisions) => ({
  ...line,
  mode: "lines+markers",
  marker: { size: 5 },
  text: decisions.map(({ queue, late }) => `queue ${queue}${late ? `, ${late} past the deadline` : ""}`),
  hovertemplate: "%{y} after %{x:.2f} s: %{text}<extra></extra>",
});

/**
 * @param {"answered" | "waits"} key
 * @param {LoadModel} model
 * @param {Colours} c
 */
function curveFigure(key, model, c) {
  const data = model.ways.map((way) => {
    const points = curveOf(way.points).map(({ offered, answered, ttft }) => ({
      x: offered,
      y: key === "answered" ? answered : (ttft?.p99 ?? NaN),
    }));
    return { ...trace(way, points, c, "linear"), mode: "lines+markers", marker: { size: 6 } };
  });
  const far = Math.max(1e-3, ...data.flatMap(({ x }) => x));
  const most = Math.max(1e-3, ...data.flatMap(({ y }) => y.filter(Number.isFinite)));
  const x = axis(c, "requests/s offered", { range: [0, far * 1.05], showgrid: false });
  const y = axis(c, key === "answered" ? "requests/s answered" : "seconds", { range: [0, most * 1.12], nticks: 5 });
  const shapes = key === "answered" ? [diagonal(Math.min(far, most), c)] : [];
  return { data, layout: layout(c, x, y, { shapes, margin: { l: 52, r: 16, t: 8, b: 40 } }) };
}

/**
 * Returns the diagonal on which all offered requests are answered.
 * @param {number} most
 * @param {Colours} c
 */
const diagonal = (most, c) => ({ ...line(c), x0: 0, y0: 0, x1: most, y1: most });

/** @param {Colours} c */
const line = (c) => ({ type: "line", line: { color: c.muted, width: 1, dash: "dot" } });

/**
 * @param {LoadWay} way
 * @param {{ x: number, y: number }[]} points
 * @param {Colours} c
 * @param {string} shape
 */
function trace(way, points, c, shape) {
  const { colour, dash } = lineOf(way.name, c);
  return {
    type: "scatter",
    mode: "lines",
    name: way.name,
    x: points.map(({ x }) => x),
    y: points.map(({ y }) => y),
    line: { shape, width: 2, color: colour, dash },
    hovertemplate: `${way.title.replaceAll("<", "&lt;")}: %{y:.3~g} at %{x:.2f}<extra></extra>`,
  };
}

/** @type {(name: string, c: Colours) => { colour: string, dash: string }} */
export const lineOf = (name, c) => {
  const index = Math.max(0, LOAD_ORDER.indexOf(name));
  return { colour: c.runs[index], dash: DASHES[index] };
};
