// The Trade-off view: gives the received lines to the cells of the grid, draws the two charts, and opens a cell as a run
// in the Live tab. Arrow keys move between the cells of the heat map, Enter opens one.

import { Plot } from "../../charts/plot.js";
import { withoutBidi } from "../../core/bytes.js";
import { attribute, button, find, indexForKey, isModified, make, put } from "../../core/dom.js";
import { PhaseView, mountOf } from "../../core/line_view.js";
import { Lane } from "../../core/trace.js";
import { valueOf } from "../../core/wire.js";
import { counted, environment } from "../../core/words.js";
import { AGREEMENT, cellLines, cellName, gridFinding } from "../../folds/grid.js";
import { Asked, onceText } from "../../text/asked.js";
import { heatFigure, scatterFigure, scatterNote } from "./figures.js";

const NOTE = `${AGREEMENT} Click a marker or a cell to open its run in Live.`;
const [BY_SPEED, BY_PASSES] = ["Show speed", "Show tokens per pass"];
const KEYS = "Tokens per pass and agreement by τ and B. Arrow keys move, Enter opens a run in Live.";

class GridView extends PhaseView {
  static what = "This result";
  static empty = "Press Run to decode Live's prompt with AR and with MARS for every τ and B.";

  /** @type {Map<string, Cell>} */
  named;
  /** @type {Cell[][]} */
  rows;
  /** @type {Cell[]} */
  references;
  /** @type {GridHead} */
  head;
  isSpeed = false;
  at = 0; // index of the cell that the keyboard has reached

  /** @param {ConstructorParameters<typeof PhaseView>} given */
  constructor(...given) {
    super(...given);
    const { root } = this;
    /** @type {MeasuredPoint[]} */
    this.points = JSON.parse(root.dataset.points || "[]");
    this.next = find(root, ".gv-next");
    this.env = find(root, ".gv-env");
    this.readout = find(root, ".gv-readout");
    this.asked = new Asked(find(root, ".rv-asked"));
    put(find(root, ".gv-note"), NOTE);
    const on = {
      plotly_click: (/** @type {Json} */ { points }) => this.open(this.named.get(points[0].customdata)),
    };
    const across = button({}, BY_SPEED, () => {
      const isSpeed = !this.isSpeed;
      this.isSpeed = isSpeed;
      put(across, isSpeed ? BY_PASSES : BY_SPEED);
      root.dataset.across = isSpeed ? "speed" : "tpf";
      this.schedule();
    });
    this.scatter = new Plot(
      root,
      "scatter",
      "Agreement with AR's text",
      (c, size) => scatterFigure(this.state, c, size),
      on,
    );
    this.heat = new Plot(
      root,
      "heat",
      "Tokens per pass and, below it, agreement, by τ and B",
      (c) => heatFigure(this.state, c),
      on,
    );
    this.crosses = make("span", "gv-crosses");
    this.scatter.caption.append(across, this.crosses);
    attribute(this.heat.node, { tabindex: 0, role: "group", "aria-label": KEYS });
    this.heat.node.addEventListener("keydown", (event) => this.key(event));
    find(root, ".gv-charts").append(this.scatter.frame, this.heat.frame);
    this.clear();
  }

  clear() {
    this.start({ run: "", prompt: "", rows: [], columns: [] });
    this.showOpening();
  }

  /** @param {GridHead} head */
  start(head) {
    this.head = head;
    this.at = 0;
    /** @type {(name: string, lane: string, row?: GridRow | null, blockSize?: number) => Cell} */
    const cell = (name, lane, row = null, blockSize = 0) => ({
      ...{ name, row, blockSize, rounds: null },
      lane: new Lane({ lane, title: row ? "MARS" : cellName({ name, row, blockSize }) }),
    });
    this.references = [cell("ar", "ar"), cell("lookup", "lookup")];
    /** @type {(row: GridRow | null) => number} */
    const height = (row) => (!row || row.lossless ? 2 : row.tau);
    this.rows = head.rows
      .map((row, r) => head.columns.map((b, c) => cell(`r${r}c${c}`, "mars", row, b)))
      .sort(([a], [b]) => height(b.row) - height(a.row));
    this.named = new Map(this.all.map((known) => [known.name, known]));
    put(this.readout, "");
    this.begin(head);
    this.schedule();
  }

  get all() {
    return [...this.references, ...this.rows.flat()];
  }

  /** @returns {GridState} */
  get state() {
    const { rows, references, isSpeed } = this;
    const checkpoint = references[0].lane.header?.checkpoint;
    return { rows, references, isSpeed, points: this.points.filter((point) => point.checkpoint === checkpoint) };
  }

  /**
   * @param {string} target
   * @param {any} data
   * @param {string} text
   */
  line(target, data, text) {
    const cell = this.named.get(data.cell || target);
    if (target === "status") this.showStatus(data);
    else if (!cell) throw new Error(`The grid has no cell ${target}.`);
    else if (target === "verdict") cell.lane.verdict = data.right;
    else if (target === "rounds") cell.rounds = data;
    else cell.lane.push(data, text);
  }

  draw() {
    const [ar] = this.references;
    const { header } = ar.lane;
    put(this.next, this.wanted?.trim() ? `Run uses the prompt of Live: ${withoutBidi(this.wanted)}` : "");
    this.root.dataset.run = String(this.head.run);
    this.root.dataset.cells = String(this.rows.flat().length);
    this.root.style.setProperty("--gv-rows", String(this.rows.length));
    this.asked.draw(
      this.rows.length ? this.head.prompt : null,
      header ? onceText(header.settings) : "",
      this.wanted,
      this.head.recorded && header ? header.checkpoint : "",
    );
    if (!this.rows.length) return;
    put(this.env, environment(header));
    this.showFinding(gridFinding(this.rows.flat(), ar));
    put(this.crosses, scatterNote(this.state));
    for (const plot of [this.scatter, this.heat]) plot.refresh();
  }

  get heading() {
    return `${counted(this.rows.flat().length, "setting")} compared with plain AR`;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (isModified(event)) return;
    const { all, at, head } = this;
    const [last, width] = [all.length - 1, head.columns.length];
    const moves = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      ArrowDown: at + width,
      ArrowUp: at - width,
      Home: 0,
      End: last,
    };
    const next = indexForKey(event, moves, last);
    if (next !== null) this.at = next;
    if (next !== null) put(this.readout, cellLines(all[next], all[0]).join(" · "));
    if (event.key === "Enter") this.open(all[at]);
  }

  /**
   * Shows a finished cell and AR in the Live tab.
   * @param {Cell | undefined} cell
   */
  open(cell) {
    const [ar] = this.references;
    if (!cell?.lane.end || !ar.lane.end) return;
    const lanes = (cell === ar ? [ar] : [cell, ar]).map(({ lane }) => lane);
    const { run, recorded } = this.head;
    const titles = lanes.map(({ name, facts }) => ({ lane: name, title: facts.title }));
    const value = valueOf({ run: `${run}/${cell.name}`, recorded, lanes: titles, pace: 0 }, lanes);
    this.root.dispatchEvent(new CustomEvent("mars-ask", { bubbles: true, detail: { kind: "replay", value } }));
  }
}

export const mountGridView = mountOf(GridView);
