// One cell per forward: above what it took, below what it would take. One tab stop, arrow keys inside. Only the rows in
// sight are in the document, so that dragging a threshold over thousands of forwards costs no more than over a hundred.

import { make, targetOf } from "../../core/dom.js";

const [WIDE, HIGH] = [23, 44]; // of a cell with its gap, as in whatif.css
const SIGHT = 236; // pixels of height at most
const MARGIN = 1; // rows kept above and below those in sight

/**
 * @param {WhatIfCell} cell
 * @param {number} num
 */
const ramp = (cell, num) => Math.min(5, cell.isLossless ? num + 1 : num);

export class WhatIfStrip {
  /** @type {WhatIfCell[]} */
  cells;
  /** @type {number} */
  chosen;
  /** @type {number} */
  top;
  /** @type {number} */
  first;
  /** @type {number} */
  columns;
  /** @type {number} */
  at;
  /** @type {Map<number, HTMLElement>} */
  nodes;

  /**
   * point(index): a forward is looked at, -1 for none; choose(index): it is chosen.
   * @param {{ point(index: number): void, choose(index: number): void }} given
   */
  constructor({ point, choose }) {
    this.report = { point, choose };
    this.element = make("div", "rv-wi-strip");
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "group");
    this.element.setAttribute(
      "aria-label",
      "Forwards, a cell each. Left and right arrows read them, Enter chooses one.",
    );
    this.inner = make("div", "rv-wi-cells");
    this.element.append(this.inner);
    this.nodes = new Map(); // index -> element, those near the rows in sight
    this.cells = [];
    this.clear();
    this.listen();
  }

  clear() {
    this.inner.replaceChildren();
    this.nodes.clear();
    Object.assign(this, { cells: [], first: -1, chosen: -1, at: -1, top: 0 });
    this.element.scrollTop = 0;
  }

  /**
   * first: of the cells that differ; chosen: the forward that the panels speak of.
   * @param {WhatIfCell[]} cells
   * @param {number} first
   * @param {number} chosen
   */
  draw(cells, first, chosen) {
    const hadSight = this.isInSight(this.chosen);
    Object.assign(this, { cells, first, chosen });
    this.columns ||= this.measure();
    this.inner.style.height = `${Math.ceil(cells.length / this.columns) * HIGH}px`;
    if (hadSight) this.reveal(chosen);
    this.show();
  }

  measure() {
    return Math.max(1, Math.floor(this.inner.clientWidth / WIDE));
  }

  /** @param {number} index */
  row(index) {
    return Math.floor(index / this.columns) * HIGH;
  }

  /** @param {number} index */
  isInSight(index) {
    if (index < 0) return true;
    return this.row(index) >= this.top && this.row(index) + HIGH <= this.top + SIGHT;
  }

  /**
   * Brings a cell into sight, without moving the page.
   * @param {number} index
   */
  reveal(index) {
    if (index < 0 || this.isInSight(index)) return;
    this.top = Math.max(0, this.row(index) - SIGHT / 2);
    this.element.scrollTop = this.top;
  }

  // Puts the cells near the rows in sight in their places and takes the others out.
  show() {
    const from = Math.max(0, Math.floor(this.top / HIGH) - MARGIN) * this.columns;
    const until = Math.min(this.cells.length, (Math.ceil((this.top + SIGHT) / HIGH) + MARGIN) * this.columns);
    for (const [index, node] of this.nodes) {
      if (index >= from && index < until) continue;
      node.remove();
      this.nodes.delete(index);
    }
    for (let index = from; index < until; index += 1) this.cell(index);
  }

  /** @param {number} index */
  cell(index) {
    let node = this.nodes.get(index);
    if (!node) {
      node = make("span");
      node.rvForward = index;
      this.nodes.set(index, node);
      this.inner.append(node);
    }
    const cell = this.cells[index];
    const { then, now } = cell;
    const marks = [
      then !== now && "rv-wi-differs",
      this.first >= 0 && index > this.first && "rv-wi-guess",
      index === this.first && "rv-wi-first",
      index === this.chosen && "rv-wi-chosen",
      index === this.at && "rv-wi-at",
    ].filter(Boolean);
    const place = `translate(${(index % this.columns) * WIDE}px, ${this.row(index)}px)`;
    const state = `${then} ${now} ${place} ${marks.join(" ")}`;
    if (node.rvState === state) return;
    node.rvState = state;
    node.className = `rv-wi-cell rv-wi-a${ramp(cell, then)} rv-wi-b${ramp(cell, now)} ${marks.join(" ")}`;
    node.style.transform = place;
    node.textContent = String(then);
    node.dataset.now = then === now ? "" : String(now);
  }

  listen() {
    const { element } = this;
    /** @param {Event} event */
    const indexOf = (event) => targetOf(event).rvForward ?? -1;
    element.addEventListener(
      "scroll",
      () => {
        this.top = element.scrollTop;
        this.show();
      },
      { passive: true },
    );
    element.addEventListener("pointerover", (event) => this.point(indexOf(event)));
    element.addEventListener("pointerleave", () => this.point(-1));
    element.addEventListener("blur", () => this.point(-1));
    element.addEventListener("click", (event) => {
      if (indexOf(event) >= 0) this.report.choose(indexOf(event));
    });
    element.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resized()).observe(element);
  }

  resized() {
    const columns = this.inner.clientWidth ? this.measure() : this.columns;
    if (columns === this.columns) return;
    this.columns = columns;
    if (this.cells.length) this.draw(this.cells, this.first, this.chosen);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const last = this.cells.length - 1;
    if (last < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const from = this.at >= 0 ? this.at : this.chosen;
    /** @type {Record<string, number>} */
    const targets = {
      ArrowRight: from + 1,
      ArrowDown: from + this.columns,
      ArrowLeft: from - 1,
      ArrowUp: from - this.columns,
      Home: 0,
      End: last,
      Enter: from,
    };
    if (!(event.key in targets)) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") {
      if (from >= 0) this.report.choose(from);
      return;
    }
    const target = Math.max(0, Math.min(last, targets[event.key]));
    this.reveal(target);
    this.point(target);
  }

  /** @param {number} index */
  point(index) {
    if (index === this.at) return;
    this.at = index;
    this.show();
    this.report.point(index);
  }
}
