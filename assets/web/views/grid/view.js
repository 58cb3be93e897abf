// The grid view: binds the feed to cells, says what is best, opens a cell as a run in the race view below.

import { find, make, put } from "../../core/dom.js";
import { LineView, mountView } from "../../core/line_view.js";
import { laneSpeedup, speedupText } from "../../core/speedup.js";
import { Lane } from "../../core/trace.js";
import { Asked, onceText } from "../../panels/text/asked.js";
import { valueOf } from "../../core/wire.js";
import { environment } from "../../core/words.js";
import { Cells } from "./cells.js";
import { cellName, fastest, isDone, parting } from "./folds.js";

const EMPTY =
  "Run decodes the prompt as plain AR, then once for every τ and B, one after the other. Any cell can be opened as a run.";
const RACE = "#grid-race .mars-race"; // the race view that shows the opened cell

export class GridView extends LineView {
  /** @type {Map<string, Cell>} */
  named;
  /** @type {Cell[][]} */
  rows;
  /** @type {Cell} */
  reference;
  /** @type {Cell | null} */
  opened;
  /** @type {string} */
  phase;
  /** @type {number} */
  shown;
  /** @type {string} */
  run;
  /** @type {string} */
  prompt;
  /** @type {string} */
  status;

  /**
   * @param {HTMLElement} root
   * @param {(run: string) => Promise<string>} missed
   */
  constructor(root, missed) {
    super(root, missed);
    /** @param {string} name */
    const part = (name) => find(root, `.${name}`);
    this.parts = {
      status: part("gv-status"),
      best: part("gv-best"),
      opened: part("gv-opened"),
      env: part("gv-env"),
      live: part("rv-live"),
    };
    this.asked = new Asked(part("rv-asked"));
    this.cells = new Cells(part("gv-table"), (cell) => this.open(cell));
    buildLegend(part("gv-legend"));
    this.clear();
  }

  /** @param {string} [text] */
  fail(text = "This grid cannot be drawn: a line of it is broken.") {
    this.say({ text, kind: "error" });
  }

  clear() {
    this.start({ run: "", prompt: "", rows: [], columns: [] });
    this.say({ text: EMPTY, kind: "empty" });
  }

  /** @param {GridHead} head */
  start(head) {
    this.run = String(head.run);
    this.prompt = head.prompt;
    this.close();
    /**
     * @param {string} name
     * @param {GridRow | null} row
     * @param {number} blockSize
     */
    const cell = (name, row, blockSize) => ({
      name,
      row,
      blockSize,
      lane: new Lane({ lane: row ? "mars" : "ar", title: row ? "MARS" : "plain AR" }),
    });
    this.reference = cell("ar", null, 0);
    this.rows = head.rows.map((row, r) => head.columns.map((b, c) => cell(`r${r}c${c}`, row, b)));
    this.cells.build([[this.reference], ...this.rows], head.columns, head.prompt);
    this.named = new Map([this.reference, ...this.rows.flat()].map((each) => [each.name, each]));
    this.say({ text: "", kind: "waiting" });
    this.schedule();
  }

  /**
   * @param {string} target
   * @param {any} data
   * @param {string} text
   */
  line(target, data, text) {
    const cell = this.named.get(data.cell || target);
    if (target === "status") this.say(data);
    else if (!cell) throw new Error(`No cell is called ${target}.`);
    else if (target === "verdict") cell.lane.verdict = data.right;
    else cell.lane.push(data, text);
  }

  /** @param {Note} given */
  say({ text, kind }) {
    this.status = text;
    this.phase = kind;
    put(this.parts.status, text);
    this.root.dataset.phase = kind;
    if (kind !== "empty" && kind !== "running") put(this.parts.live, text);
  }

  draw() {
    this.root.dataset.run = this.run;
    this.root.dataset.cells = String(this.rows.flat().length);
    const { header } = this.reference.lane;
    this.asked.draw(this.rows.length ? this.prompt : null, header ? onceText(header.settings) : "", this.wanted);
    if (!this.rows.length) return;
    const lanes = [...this.named.values()].map((cell) => cell.lane);
    const scale = {
      forwards: Math.max(8, ...lanes.map((lane) => lane.steps.length)),
      tokens: Math.max(4, ...this.rows.flat().map((cell) => cell.blockSize)),
    };
    const marks = this.marks();
    this.cells.draw(marks, scale, this.opened);
    put(this.parts.env, environment(this.reference.lane.header));
    const sentence = this.bestSentence();
    if (sentence && sentence !== this.parts.best.textContent) put(this.parts.live, `${this.status} ${sentence}`);
    put(this.parts.best, sentence);
    this.show();
  }

  get isOver() {
    return ["finished", "stopped", "error"].includes(this.phase);
  }

  // The best of a row once the row has run, the best of all at the end.
  marks() {
    const marks = new Map();
    for (const cells of this.rows) {
      if (cells.length > 1 && cells.every((cell) => isDone(cell.lane))) marks.set(fastest(cells), "row");
    }
    const best = this.isOver ? fastest(this.rows.flat()) : undefined;
    if (best) marks.set(best, "all");
    return marks;
  }

  bestSentence() {
    const cells = this.rows.flat();
    const best = this.isOver ? fastest(cells) : undefined;
    if (!best) return "";
    const ar = this.reference.lane;
    const same = fastest(cells.filter((cell) => parting(cell.lane, ar).isSame));
    /** @param {Cell} cell */
    const named = (cell) => `${cellName(cell)} (speedup ${speedupText(laneSpeedup(cell.lane, ar))})`;
    if (same === best) return `Fastest: ${named(best)}, with AR's own text.`;
    return `Fastest: ${named(best)}. ${same ? `Fastest with AR's own text: ${named(same)}.` : "No cell wrote AR's own text."}`;
  }

  /** @param {Cell} cell */
  open(cell) {
    if (!cell.lane.header) return;
    this.opened = cell;
    const against = cell === this.reference ? "" : " against plain AR";
    this.parts.opened.hidden = false;
    put(this.parts.opened, `Below: ${cellName(cell)}${against}.`);
    put(this.parts.live, `${cellName(cell)}${against} is shown below the grid.`);
    this.shown = -1;
    this.show();
    this.schedule();
    const race = document.querySelector(RACE);
    if (race && race.getBoundingClientRect().top > window.innerHeight * 0.7)
      this.parts.opened.scrollIntoView({ block: "start" });
  }

  close() {
    this.opened = null;
    this.parts.opened.hidden = true;
    const race = document.querySelector(RACE);
    if (race && race.lineView) race.lineView.read("");
  }

  // The opened cell as the value of a race; a running one grows there as it does here.
  show() {
    const { opened, reference } = this;
    const race = document.querySelector(RACE);
    if (!opened || !race || !race.lineView) return;
    const cells = opened === reference ? [reference] : [opened, reference];
    const count = cells.reduce((sum, { lane }) => sum + lane.lines.length + (lane.verdict === null ? 0 : 1), 0);
    if (count === this.shown) return;
    this.shown = count;
    const head = {
      run: `${this.run}/${opened.name}`,
      lanes: cells.map(({ lane }) => ({ lane: lane.name, title: lane.title })),
      pace: 0,
    };
    const order = cells.map(({ lane }) => lane).reverse(); // the reference ran first, so that the value only grows
    race.lineView.read(valueOf(head, order));
  }
}

/** @param {HTMLElement} element */
function buildLegend(element) {
  const keys = make("span", "gv-keys");
  for (const n of [1, 2, 3, 4, 5]) keys.append(make("i", `gv-key gv-key-${n}`, n === 5 ? "5+" : String(n)));
  element.replaceChildren(
    keys,
    make("span", "", "tokens in one forward; a strip is as wide as AR's forwards, a bar as high as its tokens"),
    make("span", "", "× times AR's tokens per second of decoding"),
    make("span", "", "★ fastest of all"),
    make("span", "", "▲ fastest of its row"),
    make("span", "", "every cell is one run, and short runs vary"),
  );
}

/**
 * @param {HTMLElement} element
 * @param {{ value: string }} props
 * @param {(name: string, changed: () => void) => void} watch
 * @param {(run: string) => Promise<string>} [missed]
 */
export const mountGridView = (element, props, watch, missed) => mountView(GridView, element, props, watch, missed);
