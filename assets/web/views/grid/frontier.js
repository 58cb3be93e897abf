// The chart next to the heat map: agreement with AR against tokens per pass, with a point for every cell and a line through
// the points that no other point dominates. The chart is a single tab stop: arrow keys move between points in the order
// of their tokens per pass, Enter opens a cell as a run.

import { OUTLINES, frontierLine, lengthOf, markKeys, planeAxes, planeScale, takesRoom } from "../../charts/plane.js";
import { isModified, indexForKey, make, put, shape, targetOf } from "../../core/dom.js";
import { short } from "../../core/words.js";
import { MEASURES, cellLabel, cellName, frontier } from "../../folds/grid.js";

const WIDEST = 560; // maximum width of the chart in pixels
const HINT =
  "Right: fewer passes. Up: closer to AR's text. No cell is beyond the dashed line. Click a point to open it as a run.";

export class Frontier {
  /** @type {Map<Cell, SVGGElement>} */
  nodes;
  /** @type {GridPoint[]} */
  points;
  /** @type {string} */
  drawn;

  /**
   * report.open: shows a cell as a run. report.point: called with the cell that the visitor points at, or with null.
   * @param {HTMLElement} element
   * @param {{ open(cell: Cell): void, point(cell: Cell | null): void }} report
   */
  constructor(element, report) {
    this.report = report;
    this.axes = shape("g", { class: "gv-axes", "aria-hidden": "true" });
    this.line = shape("path", "gv-front");
    this.marks = shape("g");
    this.labels = shape("g", { class: "gv-labels", "aria-hidden": "true" });
    this.readout = make("figcaption", "gv-readout");
    const label =
      "Agreement with AR by tokens per pass, one point per cell. Arrow keys move, Enter opens a cell as a run.";
    const attributes = { class: "gv-plot", height: HEIGHT, role: "group", "aria-label": label };
    this.svg = shape("svg", attributes, this.axes, this.line, this.labels, this.marks);
    this.keys = make("div");
    element.append(this.svg, this.readout, this.keys);
    this.svg.addEventListener("click", (event) => this.press(targetOf(event)));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    for (const event of ["pointerover", "focusin"])
      this.svg.addEventListener(event, ({ target }) => this.pointed(this.cellOf(target)));
    for (const event of ["pointerout", "focusout"]) this.svg.addEventListener(event, () => this.pointed(null));
    this.build([]);
  }

  /** @param {Cell[]} cells */
  build(cells) {
    this.nodes = new Map(cells.map((cell) => [cell, pointOf(cell)]));
    this.keys.replaceChildren(markKeys(cells.map(({ row }) => kindOf(row))));
    this.points = [];
    this.drawn = "";
    this.marks.replaceChildren(...this.nodes.values());
    this.pointed(null);
  }

  /**
   * @param {Cell} ar
   * @param {Map<Cell, CellLook>} looks
   */
  draw(ar, looks) {
    this.points = [...this.nodes.keys()]
      .map((cell) => ({ cell, x: MEASURES.tpf(cell, ar), y: MEASURES.agreement(cell, ar) }))
      .filter(({ y }) => Number.isFinite(y))
      .sort((a, b) => a.x - b.x || a.y - b.y);
    for (const [cell, node] of this.nodes) {
      const look = /** @type {CellLook} */ (looks.get(cell));
      node.dataset.colour = String(look.colour ?? "");
      node.dataset.opened = String(look.isOpened);
      node.setAttribute("aria-label", cellLabel(cell, ar, look.mark, look.isOpened));
    }
    const width = Math.min(WIDEST, this.svg.parentElement?.clientWidth || 0);
    const state = [width, ...this.points.map(({ cell, x, y }) => `${cell.name} ${x} ${y}`)].join();
    if (!width || state === this.drawn) return;
    this.drawn = state;
    this.svg.setAttribute("width", String(width));
    this.place(scaleOf(this.points, width));
  }

  /** @param {GridScale} scale */
  place(scale) {
    const best = frontier(this.points);
    this.axes.replaceChildren(
      ...planeAxes(scale, scale, {
        prefix: "gv",
        ...scale,
        below: 16,
        title: "agreement with AR, %",
        across: "tokens per forward pass",
      }),
    );
    this.line.setAttribute("d", frontierLine(best, scale, scale));
    this.labels.replaceChildren(...labelsOf(best, this.points, scale));
    for (const { cell, x, y } of this.points) {
      const node = this.nodeOf(cell);
      node.removeAttribute("display");
      node.setAttribute("transform", `translate(${scale.x(x)} ${scale.y(y)})`);
      node.dataset.best = String(best.some((point) => point.cell === cell));
    }
    if (this.points.length && !this.marks.querySelector("[tabindex='0']"))
      this.nodeOf(this.points[0].cell).tabIndex = 0;
  }

  /**
   * @param {Cell} cell
   * @returns {SVGGElement}
   */
  nodeOf(cell) {
    return /** @type {SVGGElement} */ (this.nodes.get(cell));
  }

  /** @param {EventTarget | null} target */
  cellOf(target) {
    const node = target instanceof Element && target.closest(".gv-point");
    return [...this.nodes].find(([, point]) => point === node)?.[0] || null;
  }

  /** @param {Cell | null} cell */
  pointed(cell) {
    put(this.readout, (cell && this.nodeOf(cell).getAttribute("aria-label")) || HINT);
    this.report.point(cell);
  }

  /** @param {Element} target */
  press(target) {
    const cell = this.cellOf(target);
    if (cell) this.report.open(cell);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (isModified(event)) return;
    const at = this.points.findIndex(({ cell }) => cell === this.cellOf(event.target));
    const last = this.points.length - 1;
    const arrows = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1 };
    const target = indexForKey(event, { ...arrows, Home: 0, End: last }, last);
    if (target !== null) this.go(target);
    if (event.key !== "Enter" && event.key !== " ") return;
    this.press(targetOf(event));
    event.preventDefault();
  }

  /** @param {number} index */
  go(index) {
    for (const node of this.nodes.values()) node.tabIndex = -1;
    const node = this.nodeOf(this.points[index].cell);
    node.tabIndex = 0;
    node.focus();
  }
}

const HEIGHT = 340;
const MARGIN = { left: 46, right: 18, top: 28, bottom: 42 };

/**
 * Returns the scales of the chart. Tokens per pass range from plain AR's 1 to the largest value; agreement ranges from
 * the multiple of 25 % below the lowest value to 100 %.
 * @param {GridPoint[]} points
 * @param {number} width
 */
export function scaleOf(points, width) {
  const most = Math.max(1.5, ...points.map(({ x }) => x));
  const step = most > 6 ? 2 : most > 3 ? 1 : most > 2 ? 0.5 : 0.25;
  const end = Math.ceil(most / step + 0.2) * step;
  const low = Math.min(0.75, ...points.map(({ y }) => Math.floor(y * 4) / 4));
  const share = low < 0.5 ? 0.25 : low < 0.75 ? 0.1 : 0.05;
  /** @type {(from: number, to: number, step: number, unit: number) => [value: number, text: string][]} */
  const values = (from, to, by, unit) =>
    Array.from({ length: Math.round((to - from) / by) + 1 }, (_, i) => from + i * by).map((value) => [
      value,
      short(unit * value, unit === 1 ? 2 : 0),
    ]);
  const picture = { width, height: HEIGHT, margin: MARGIN };
  const labels = { ticks: values(1, end, step, 1), shares: values(low, 1, share, 100) };
  return { ...picture, ...labels, ...planeScale(picture, [0.9, end], [low, 1]) };
}

/** @type {(row: GridRow | null) => string} */
const kindOf = (row) => (row ? (row.lossless ? "lossless" : "tau") : "ar");

/**
 * Creates the node of a cell's point, which is hidden until it has a position.
 * @param {Cell} cell
 */
function pointOf({ name, row }) {
  const outline = OUTLINES[kindOf(row)];
  const attributes = { class: "gv-point", role: "button", tabindex: -1, display: "none", "data-cell": name };
  return shape(
    "g",
    attributes,
    shape("circle", { class: "gv-reach", r: 13 }),
    shape("path", { class: "gv-dot", d: outline }),
  );
}

const PLACES = [
  { across: 4, down: -11 },
  { across: 11, down: 5 },
  { across: 4, down: 21 },
]; // possible positions of a label, relative to its point, in the order in which they are tried

/**
 * Creates labels for the points on the frontier. A point gets no label if there is no free position.
 * @param {GridPoint[]} best
 * @param {GridPoint[]} all
 * @param {GridScale} scale
 */
function labelsOf(best, all, { width, x, y }) {
  /** @type {LabelBox[]} */
  const taken = all.map((point) => ({ left: x(point.x) - 8, right: x(point.x) + 8, at: y(point.y) + 4 }));
  return [...best].reverse().flatMap((point) => {
    const text = cellName(point.cell).replace(", ", " · ");
    const long = lengthOf(text);
    for (const { across, down } of PLACES) {
      const left = Math.min(x(point.x) + across, width - long);
      const box = { left, right: left + long, at: y(point.y) + down };
      if (takesRoom(taken, box)) return [shape("text", { class: "gv-label", x: box.left, y: box.at }, text)];
    }
    return [];
  });
}
