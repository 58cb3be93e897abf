// The table of small multiples: one row per threshold, one column per B, plain AR above them. One tab stop:
// the arrow keys move between cells, Enter opens one. Text only; every number is a fold of the lanes.

import { figure, whole } from "../../core/words.js";
import { make, put, targetOf } from "../../core/dom.js";
import { laneSpeedup, speedupRemark, speedupText } from "../../core/speedup.js";
import { folds } from "../../core/folds.js";
import { cellName, isDone, parting, rowName } from "./folds.js";
import { Strip } from "./strip.js";

/** @type {Record<string, string>} */
const MARKS = { all: "★ fastest", row: "▲ fastest of its row" };

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
  parts;
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
      mark: make("span", "gv-mark"),
      ratio: make("b", "gv-ratio rv-num"),
      speed: make("span", "gv-speed rv-num"),
      strip: new Strip(),
      differs: make("span", "gv-differs rv-num"),
      verdict: make("span", "gv-verdict"),
    };
    const top = make("span", "gv-top");
    top.append(parts.tpf, make("small", "", "TPF"), parts.mark);
    const rates = make("span", "gv-rates");
    rates.append(parts.ratio, parts.speed);
    const foot = make("span", "gv-foot");
    foot.append(parts.differs, parts.verdict);
    node.append(top, rates, parts.strip.element, foot);
    this.parts.set(cell, parts);
    return node;
  }

  /**
   * `marks`: cell -> "all" or "row"; `scale`: { forwards, tokens } of a full strip.
   * @param {Map<Cell, string>} marks
   * @param {{ forwards: number, tokens: number }} scale
   * @param {Cell | null} opened
   */
  draw(marks, scale, opened) {
    const [[ar]] = this.rows;
    for (const cells of this.rows)
      for (const cell of cells) this.drawCell(cell, ar, marks.get(cell), scale, cell === opened);
  }

  /**
   * @param {Cell} cell
   * @param {Cell} ar
   * @param {string | undefined} mark
   * @param {{ forwards: number, tokens: number }} scale
   * @param {boolean} isOpened
   */
  drawCell(cell, ar, mark, scale, isOpened) {
    const { lane } = cell;
    const parts = this.partsOf(cell);
    const state = stateOf(lane);
    const texts = textsOf(cell, ar);
    parts.node.dataset.state = state;
    parts.node.dataset.mark = mark || "";
    parts.node.setAttribute("aria-selected", String(isOpened));
    parts.node.setAttribute("aria-disabled", String(state === "waiting"));
    put(parts.tpf, texts.tpf);
    put(parts.mark, mark ? MARKS[mark] : "");
    put(parts.ratio, texts.ratio);
    parts.ratio.dataset.kind = texts.speedup;
    parts.ratio.title = texts.range;
    put(parts.speed, texts.speed);
    put(parts.differs, texts.differs);
    parts.node.dataset.text = texts.kind;
    parts.verdict.dataset.right = String(lane.verdict);
    put(parts.verdict, lane.verdict === null ? "" : lane.verdict ? "✓ right" : "✗ wrong");
    parts.strip.draw(lane.steps, scale.forwards, scale.tokens);
    const label = [
      cellName(cell),
      ...(state === "waiting"
        ? ["has not run yet"]
        : [
            texts.tpf ? `${texts.tpf} tokens per forward` : "",
            texts.speed,
            texts.ratio && `speedup over plain AR ${texts.ratio}`,
            texts.differs,
            parts.verdict.textContent.slice(2),
            mark ? MARKS[mark].slice(2) : "",
            isOpened ? "shown below" : "",
          ]),
    ];
    const text = label.filter(Boolean).join(", ");
    if (parts.node.getAttribute("aria-label") !== text) parts.node.setAttribute("aria-label", text);
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

/** @param {Lane} lane */
function stateOf(lane) {
  if (!lane.header) return "waiting";
  if (!lane.end) return "running";
  return isDone(lane) ? "done" : "stopped";
}

/**
 * @param {Cell} cell
 * @param {Cell} ar
 */
function textsOf(cell, ar) {
  const { lane } = cell;
  if (!lane.steps.length) return { tpf: "", ratio: "", speedup: "", range: "", speed: "", differs: "", kind: "" };
  const isReference = cell === ar;
  const apart = parting(lane, ar.lane);
  const differs = apart.place >= 0 ? `differs from token ${whole(apart.place + 1)}` : apart.isSame ? "same text" : "";
  const speedup = laneSpeedup(lane, ar.lane);
  return {
    tpf: figure(folds.perForward(lane)),
    ratio: isReference ? "" : speedupText(speedup) + (speedup.kind === "slower" ? " slower" : ""),
    speedup: speedup.kind,
    range: isReference ? "" : speedupRemark(speedup),
    speed: `${figure(folds.perSecond(lane))} tok/s`,
    differs: isReference ? "what the cells are held against" : differs,
    kind: isReference ? "reference" : apart.place >= 0 ? "differs" : apart.isSame ? "same" : "",
  };
}
