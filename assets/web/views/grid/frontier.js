// The chart beside the heat map: every cell as a point, agreement with AR against tokens per forward, and the line
// through those that no other cell beats. One tab stop: arrow keys move along the line of tokens, Enter opens a run.

import { make, put, shape, targetOf } from "../../core/dom.js";
import { MEASURES, frontier } from "./folds.js";
import { HEIGHT, axisShapes, labelsOf, pointOf, scaleOf } from "./frontier_shapes.js";
import { cellLabel } from "./words.js";

const WIDEST = 560;
const HINT = "Further right is fewer forward passes, further up is more of AR's own text. Point at a cell, or open it.";

export class Frontier {
  /** @type {Map<Cell, SVGGElement>} */
  nodes;
  /** @type {GridPoint[]} */
  points;
  /** @type {string} */
  drawn;

  /**
   * open(cell): shows it as a run; point(cell): it is pointed at, null when no more.
   * @param {HTMLElement} element
   * @param {{ open(cell: Cell): void, point(cell: Cell | null): void }} report
   */
  constructor(element, report) {
    this.report = report;
    this.svg = shape("svg", "gv-plot", { height: HEIGHT, role: "group" });
    this.svg.setAttribute(
      "aria-label",
      "Agreement with AR against tokens per forward, a point per cell. Arrow keys move, Enter opens a cell as a run.",
    );
    this.axes = shape("g", "gv-axes", { "aria-hidden": "true" });
    this.line = shape("path", "gv-front");
    this.marks = shape("g");
    this.labels = shape("g", "gv-labels", { "aria-hidden": "true" });
    this.readout = make("figcaption", "gv-readout");
    this.svg.append(this.axes, this.line, this.labels, this.marks);
    element.append(this.svg, this.readout);
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
      .map((cell) => ({ cell, x: MEASURES.tpf(cell.lane, ar.lane), y: MEASURES.agreement(cell.lane, ar.lane) }))
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
    this.axes.replaceChildren(...axisShapes(scale));
    this.line.setAttribute("d", best.map(({ x, y }, i) => `${i ? "L" : "M"}${scale.x(x)} ${scale.y(y)}`).join(""));
    this.labels.replaceChildren(...labelsOf(best, scale));
    for (const { cell, x, y } of this.points) {
      const node = this.nodeOf(cell);
      node.removeAttribute("display");
      node.setAttribute("transform", `translate(${scale.x(x)} ${scale.y(y)})`);
      node.dataset.best = String(best.some((each) => each.cell === cell));
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
    return [...this.nodes].find(([, each]) => each === node)?.[0] || null;
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
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.points.findIndex(({ cell }) => cell === this.cellOf(event.target));
    const last = this.points.length - 1;
    /** @type {Record<string, number>} */
    const moves = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1, Home: 0, End: last };
    if (event.key === "Enter" || event.key === " ") this.press(targetOf(event));
    else if (event.key in moves) this.go(Math.max(0, Math.min(last, moves[event.key])));
    else return;
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
