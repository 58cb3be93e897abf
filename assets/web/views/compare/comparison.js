// The comparison of the ticked runs: a table of figures, aligned texts, and charts with one line per run.

import { Plots, chartFrame } from "../../charts/plots.js";
import { axis, label, layout } from "../../charts/plot.js";
import { coloursOf, runColours } from "../../core/colours.js";
import { find, group, legendItem, make, put } from "../../core/dom.js";
import { folds, lastOf, thinned } from "../../core/folds.js";
import { textKeys } from "../race/figures.js";
import { FACTS, FIGURES, LETTERS, best, comparisonFinding, isOneMachine, isReadAlike, remarks } from "./figures.js";
import { Texts } from "./texts.js";

export class Comparison {
  /** @type {Pin[]} */
  pins = [];

  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.element = find(root, ".cv-comparison");
    this.table = find(root, ".cv-figuretable");
    this.chooser = /** @type {HTMLSelectElement} */ (find(root, ".cv-reference select"));
    this.texts = new Texts(find(root, ".cv-texts"), { token() {}, leave() {} });
    const charts = PLOTS.map(([key, title]) => chartFrame(key, title));
    this.plots = new Plots(root, find(root, ".rv-charts"), charts, {
      figure: (key) => (this.pins.length > 1 ? overlayFigure(key, this.lanes, coloursOf(root)) : null),
      rest: "figures and texts are",
    });
    this.chooser.addEventListener("change", () => this.texts.align(this.chooser.selectedIndex));
    find(root, ".cv-legend").replaceChildren(...textKeys(), legendItem("cv-differs", DIFFERS));
  }

  /**
   * Shows the comparison of these runs. Does nothing if they are already shown, unless a name has changed (isNamed).
   * @param {Pin[]} pins
   * @param {boolean} [isNamed]
   */
  show(pins, isNamed = false) {
    const isSame = pins.length === this.pins.length && pins.every((pin, i) => pin === this.pins[i]);
    if (isSame && !isNamed) return;
    const reference = this.pins[this.chooser.selectedIndex];
    this.pins = pins;
    this.element.hidden = pins.length < 2;
    put(find(this.root, ".rv-finding"), comparisonFinding(this.lanes));
    if (pins.length < 2) return;
    drawTable(this.table, pins);
    this.chooser.replaceChildren(...pins.map((pin, i) => make("option", "", `${LETTERS[i]} · ${pin.name}`)));
    this.chooser.selectedIndex = Math.max(0, pins.indexOf(reference));
    this.texts.show(pins, this.chooser.selectedIndex);
    this.plots.show();
  }

  get lanes() {
    return this.pins.map((pin) => pin.lane);
  }

  recolour() {
    this.plots.draw();
  }
}

const DIFFERS = "not in the reference (in the reference: missing in another text)";

/**
 * @param {HTMLElement} element
 * @param {Pin[]} pins
 */
function drawTable(element, pins) {
  const lanes = pins.map((pin) => pin.lane);
  const facts = FACTS.map(([name, of]) =>
    row(
      name,
      lanes.map((lane) => [make("span", "", of(lane))]),
    ),
  );
  const table = make("table", "cv-table rv-num", head(pins), ...figureRows(lanes), ...facts);
  const scroll = group("cv-scroll", "Figures of the compared runs", table); // wider than a phone's screen, so it must be scrollable by keyboard
  element.replaceChildren(scroll, ...remarks(lanes).map((sentence) => make("p", "cv-remark", sentence)));
}

/** @param {Pin[]} pins */
function head(pins) {
  const cells = pins.map((pin, i) =>
    make(
      "th",
      { scope: "col", "data-colour": String(pin.record.colour) },
      make("span", "cv-letter", LETTERS[i]),
      make("span", "cv-run", pin.label),
      make("span", "cv-runname", pin.name),
    ),
  );
  return make("tr", "", make("td"), ...cells);
}

/** @param {Lane[]} lanes */
function figureRows(lanes) {
  const isFair = isOneMachine(lanes);
  return FIGURES.map(({ name, unit, of, show, better, isTimed }) => {
    const values = lanes.map(of);
    const isAlike = of !== folds.toFirst || isReadAlike(lanes);
    const top = (isTimed && !isFair) || !isAlike ? [] : best(values, better);
    return row(
      unit ? `${name}, ${unit}` : name,
      values.map((value, i) => {
        const isBest = top.includes(i);
        const number = make(isBest ? "b" : "span", "", Number.isFinite(value) ? show(value) : "–");
        return isBest ? [number, " ", make("span", "cv-best", "best")] : [number];
      }),
    );
  });
}

/** @type {(name: string, cells: (Node | string)[][]) => HTMLElement} */
const row = (name, cells) =>
  make("tr", "", make("th", { scope: "row" }, name), ...cells.map((parts) => make("td", "", ...parts)));

// The charts. Runs are distinguished by letter and line style, and have the same colours as in other views.
const PLOTS = [
  ["time", "Tokens by measured time, each run on its own clock"],
  ["forwards", "Tokens by forward pass"],
];

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const POINTS = 400; // maximum number of passes that a line draws
const NEAR = 0.06; // share of a chart's height and width; labels that are closer are placed one above the other

/** @type {Record<string, { title: string, of: (step: Step) => number, unit: string }>} */
const AXES = {
  time: { title: "decoding time (s)", of: (step) => step.clock, unit: "s" },
  forwards: { title: "forward passes", of: (step) => step.index + 1, unit: "passes" },
};

/**
 * @param {string} key
 * @param {Lane[]} lanes
 * @param {Colours} c
 */
function overlayFigure(key, lanes, c) {
  const { title, of, unit } = AXES[key];
  const data = lanes.map((lane, i) => {
    const drawn = thinned(lane.steps, POINTS);
    return {
      type: "scatter",
      mode: "lines",
      name: LETTERS[i],
      x: [0, ...drawn.map(of)],
      y: [0, ...drawn.map((step) => step.first + step.count)],
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
    const text = label(end.trace.name, end.x, end.y, end.trace.line.color);
    return { ...text, xshift: 5, yshift: shift };
  });
}
