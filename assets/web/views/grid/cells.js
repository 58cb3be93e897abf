// The heat map: one row per threshold, one column per B, and plain AR above them. Every cell shows its numbers; its
// colour shows the number that the visitor chose. The heat map is a single tab stop: arrow keys move between cells,
// Enter opens a cell.

import { attribute, isModified, make, put, targetOf } from "../../core/dom.js";
import { verdictText } from "../../core/words.js";
import { MARKS, cellLabel, rowName, stateOf, textsOf } from "../../folds/grid.js";

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
   * Builds the heat map. rows: the cells by row, plain AR's cell first: [[ar], [cell, cell], ...].
   * @param {Cell[][]} rows
   * @param {number[]} columns
   * @param {string} prompt
   */
  build(rows, columns, prompt) {
    this.rows = rows;
    this.parts = new Map();
    const label = `Results by τ and B for the prompt “${prompt.replace(/\s+/g, " ").slice(0, 120)}”. Arrow keys move, Enter opens a cell as a run.`;
    const table = make(
      "div",
      { class: "gv-grid", role: "grid", "aria-label": label, style: `--columns: ${columns.length}` },
      make(
        "div",
        { class: "gv-row gv-heads", role: "row" },
        make("span", { class: "gv-corner", role: "columnheader" }, "τ × B"),
        ...columns.map((b) => make("span", { class: "gv-column rv-num", role: "columnheader" }, `B ${b}`)),
      ),
      ...rows.map((cells, at) => this.row(cells, at, columns.length)),
    );
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
    const nodes = cells.map((cell) => this.cell(cell));
    if (!at) for (const node of nodes) attribute(node, { "aria-colspan": width });
    const name = cells[0].row ? rowName(cells[0].row) : "plain AR";
    return make(
      "div",
      { class: at ? "gv-row" : "gv-row gv-reference", role: "row" },
      make("span", { class: "gv-name rv-num", role: "rowheader" }, name),
      ...nodes,
    );
  }

  /** @param {Cell} cell */
  cell(cell) {
    const texts = {
      tpf: make("b", "gv-tpf rv-num"),
      agreement: make("b", "gv-agreement rv-num"),
      ratio: make("b", "gv-ratio rv-num"),
      speed: make("small", "gv-speed rv-num"),
      mark: make("span", "gv-mark"),
      differs: make("span", "gv-differs rv-num"),
      verdict: make("span", "gv-verdict"),
    };
    const node = make(
      "div",
      { class: "gv-cell", role: "gridcell", tabindex: -1, "data-cell": cell.name },
      numberOf("tpf", texts.tpf, make("small", "", "/pass")),
      numberOf("agreement", texts.agreement, make("small", "", "% agree")),
      numberOf("speed", texts.ratio, texts.speed),
      texts.differs,
      make("span", "gv-side", texts.verdict, texts.mark),
    );
    this.parts.set(cell, { node, ...texts });
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
    attribute(parts.node, { "aria-selected": isOpened, "aria-disabled": state === "waiting" });
    put(parts.tpf, texts.tpf);
    put(parts.agreement, texts.agreement);
    put(parts.ratio, texts.ratio);
    parts.ratio.dataset.kind = texts.speedup;
    parts.ratio.title = texts.range;
    put(parts.speed, texts.speed);
    put(parts.differs, texts.differs);
    parts.verdict.dataset.right = String(lane.verdict);
    put(parts.verdict, verdictText(lane.verdict));
    put(parts.mark, mark && MARKS[mark]);
    const label = cellLabel(cell, ar, mark, isOpened);
    if (parts.node.getAttribute("aria-label") !== label) attribute(parts.node, { "aria-label": label });
  }

  /**
   * Outlines the cell that the visitor points at in the chart; null removes the outline.
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
    if (isModified(event)) return;
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
   * Moves the focus to a cell. If the row has fewer columns, moves to its last cell. The column is remembered while the
   * single cell of plain AR has the focus, so that moving down returns to it.
   * @param {[number, number]} given
   */
  go([row, column]) {
    if (row < 0 || row >= this.rows.length) return;
    const cells = this.rows[row];
    const index = Math.max(0, Math.min(cells.length - 1, column));
    this.partsOf(cells[index]).node.focus();
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

/** @type {(measure: Measure, ...parts: Node[]) => HTMLElement} */
const numberOf = (measure, ...parts) => make("span", { class: "gv-number", "data-measure": measure }, ...parts);
