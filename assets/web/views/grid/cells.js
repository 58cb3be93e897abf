// The heat map: one row per threshold, one column per B, plain AR above them. One tab stop: the arrow keys move
// between cells, Enter opens one. Every cell says its numbers; the colour repeats the one that was chosen.

import { make, put, targetOf } from "../../core/dom.js";
import { MARKS, cellLabel, rowName, stateOf, textsOf } from "./folds.js";

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string} name
 * @param {string} className
 * @param {string} [text]
 * @returns {HTMLElementTagNameMap[K]}
 */
const role = (tag, name, className, text) => {
  const node = make(tag, className, text);
  node.setAttribute("role", name);
  return node;
};

export class Cells {
  /** @type {Map<Cell, CellParts>} */
  parts = new Map();
  /** @type {Cell[][]} */
  rows;
  /** @type {[number, number]} */
  at;

  /**
   * @param {HTMLElement} element
   * @param {(cell: Cell) => void} open
   */
  constructor(element, open) {
    this.element = element;
    this.open = open;
    element.addEventListener("click", (event) => this.press(targetOf(event)));
    element.addEventListener("keydown", (event) => this.key(event));
    element.addEventListener("focusin", (event) => this.focused(targetOf(event)));
  }

  /**
   * `rows` of cells, the reference first: [[ar], [cell, cell], ...]
   * @param {Cell[][]} rows
   * @param {number[]} columns
   * @param {string} prompt
   */
  build(rows, columns, prompt) {
    this.rows = rows;
    this.parts = new Map();
    const table = role("div", "grid", "gv-grid");
    table.setAttribute(
      "aria-label",
      `τ by B for: ${prompt.replace(/\s+/g, " ").slice(0, 120)}. Arrow keys move, Enter opens a cell as a run.`,
    );
    table.style.setProperty("--columns", String(columns.length));
    const head = role("div", "row", "gv-row gv-heads");
    head.append(
      role("span", "columnheader", "gv-corner", "τ × B"),
      ...columns.map((b) => role("span", "columnheader", "gv-column rv-num", `B ${b}`)),
    );
    table.append(head, ...rows.map((cells, at) => this.row(cells, at, columns.length)));
    this.element.replaceChildren(...(columns.length ? [table] : []));
    this.at = [0, 0];
    if (columns.length) this.partsOf(rows[0][0]).node.tabIndex = 0;
  }

  /**
   * @param {Cell[]} cells
   * @param {number} at
   * @param {number} width
   */
  row(cells, at, width) {
    const row = role("div", "row", at ? "gv-row" : "gv-row gv-reference");
    row.append(role("span", "rowheader", "gv-name rv-num", cells[0].row ? rowName(cells[0].row) : "plain AR"));
    for (const cell of cells) {
      const node = this.cell(cell);
      if (!at) node.setAttribute("aria-colspan", String(width));
      row.append(node);
    }
    return row;
  }

  /** @param {Cell} cell */
  cell(cell) {
    const node = role("div", "gridcell", "gv-cell");
    node.tabIndex = -1;
    node.dataset.cell = cell.name;
    const parts = {
      node,
      tpf: make("b", "gv-tpf rv-num"),
      agreement: make("b", "gv-agreement rv-num"),
      ratio: make("b", "gv-ratio rv-num"),
      speed: make("small", "gv-speed rv-num"),
      mark: make("span", "gv-mark"),
      differs: make("span", "gv-differs rv-num"),
      verdict: make("span", "gv-verdict"),
    };
    node.append(
      numberOf("tpf", parts.tpf, make("small", "", "TPF")),
      numberOf("agreement", parts.agreement, make("small", "", "% agree")),
      numberOf("speed", parts.ratio, parts.speed),
      parts.differs,
      side(parts.verdict, parts.mark),
    );
    this.parts.set(cell, parts);
    return node;
  }

  /** @param {Map<Cell, CellLook>} looks */
  draw(looks) {
    const [[ar]] = this.rows;
    for (const [cell, look] of looks) this.drawCell(cell, ar, look);
  }

  /**
   * @param {Cell} cell
   * @param {Cell} ar
   * @param {CellLook} look
   */
  drawCell(cell, ar, { level, mark, isOpened, colour }) {
    const { lane } = cell;
    const parts = this.partsOf(cell);
    const state = stateOf(lane);
    const texts = textsOf(cell, ar);
    Object.assign(parts.node.dataset, {
      state,
      mark,
      level: String(level),
      colour: String(colour ?? ""),
      text: texts.kind,
    });
    parts.node.setAttribute("aria-selected", String(isOpened));
    parts.node.setAttribute("aria-disabled", String(state === "waiting"));
    put(parts.tpf, texts.tpf);
    put(parts.agreement, texts.agreement);
    put(parts.ratio, texts.ratio);
    parts.ratio.dataset.kind = texts.speedup;
    parts.ratio.title = texts.range;
    put(parts.speed, texts.speed);
    put(parts.differs, texts.differs);
    parts.verdict.dataset.right = String(lane.verdict);
    put(parts.verdict, lane.verdict === null ? "" : lane.verdict ? "✓ right" : "✗ wrong");
    put(parts.mark, mark && MARKS[mark]);
    const label = cellLabel(cell, ar, mark, isOpened);
    if (parts.node.getAttribute("aria-label") !== label) parts.node.setAttribute("aria-label", label);
  }

  /**
   * Outlines a cell that is pointed at elsewhere.
   * @param {Cell | null} pointed
   */
  point(pointed) {
    for (const [cell, { node }] of this.parts) node.classList.toggle("gv-pointed", cell === pointed);
  }

  /**
   * @param {Cell} cell
   * @returns {CellParts}
   */
  partsOf(cell) {
    return /** @type {CellParts} */ (this.parts.get(cell));
  }

  /** @param {HTMLElement} target */
  press(target) {
    const cell = this.cellOf(target);
    if (cell) this.open(cell);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [row, column] = this.at;
    const last = this.rows.length - 1;
    /** @type {Record<string, [number, number]>} */
    const moves = {
      ArrowRight: [row, column + 1],
      ArrowLeft: [row, column - 1],
      ArrowDown: [row + 1, column],
      ArrowUp: [row - 1, column],
      Home: [row, 0],
      End: [row, Infinity],
      PageUp: [0, column],
      PageDown: [last, column],
    };
    if (event.key === "Enter" || event.key === " ") this.press(targetOf(event));
    else if (moves[event.key]) this.go(moves[event.key]);
    else return;
    event.preventDefault();
  }

  /**
   * A row's end is not the next one's beginning; the column is kept on the way over the reference.
   * @param {[number, number]} given
   */
  go([row, column]) {
    if (row < 0 || row >= this.rows.length) return;
    const cells = this.rows[row];
    const place = Math.max(0, Math.min(cells.length - 1, column));
    this.partsOf(cells[place]).node.focus();
    if (!row) this.at = [row, Math.max(0, column === Infinity ? 0 : column)];
  }

  /** @param {HTMLElement} target */
  focused(target) {
    const cell = this.cellOf(target);
    if (!cell) return;
    for (const { node } of this.parts.values()) node.tabIndex = -1;
    this.partsOf(cell).node.tabIndex = 0;
    const row = this.rows.findIndex((cells) => cells.includes(cell));
    this.at = [row, this.rows[row].indexOf(cell)];
  }

  /** @param {HTMLElement} target */
  cellOf(target) {
    const node = /** @type {HTMLElement | null} */ (target.closest(".gv-cell"));
    return node && this.rows.flat().find((cell) => cell.name === node.dataset.cell);
  }
}

/**
 * @param {Measure} measure
 * @param {Node[]} parts
 */
function numberOf(measure, ...parts) {
  const number = make("span", "gv-number");
  number.dataset.measure = measure;
  number.append(...parts);
  return number;
}

/** @param {Node[]} parts */
function side(...parts) {
  const node = make("span", "gv-side");
  node.append(...parts);
  return node;
}
