// The grid view: binds the feed to the heat map and the chart beside it, says what is best, opens a cell as a run in
// the race view below.

import { runColours } from "../../core/colours.js";
import { find, make, put } from "../../core/dom.js";
import { LineView, mountView } from "../../core/line_view.js";
import { laneSpeedup, speedupText } from "../../core/speedup.js";
import { Lane } from "../../core/trace.js";
import { valueOf } from "../../core/wire.js";
import { environment, figure } from "../../core/words.js";
import { Asked, onceText } from "../../text/asked.js";
import { Cells } from "./cells.js";
import {
  MARKS,
  MARK_WORDS,
  MEASURES,
  NUM_LEVELS,
  cellName,
  fastest,
  isDone,
  levelOf,
  parting,
  percent,
  rangeOf,
} from "./folds.js";
import { Frontier } from "./frontier.js";

const EMPTY =
  "Run decodes the prompt as plain AR, one token per forward pass of the model, then by MARS for every τ (how sure it must be of a token to keep it) and B (how many tokens it proposes in one pass). Any cell can be opened as a run.";
const RACE = "#grid-race .mars-race"; // the race view that shows the opened cell

class GridView extends LineView {
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
  /** @type {Measure} */
  measure = "tpf";

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
    this.frontier = new Frontier(part("gv-frontier"), {
      open: (cell) => this.open(cell),
      point: (cell) => this.cells.point(cell),
    });
    this.legend = new Legend(part("gv-legend"));
    buildChooser(part("gv-measures"), (measure) => this.colourBy(measure));
    new ResizeObserver(() => this.schedule()).observe(part("gv-frontier"));
    this.watchTheme();
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
    const all = [this.reference, ...this.rows.flat()];
    this.named = new Map(all.map((each) => [each.name, each]));
    this.frontier.build(all);
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
    const looks = this.looks();
    this.cells.draw(looks);
    this.frontier.draw(this.reference, looks);
    put(this.parts.env, environment(this.reference.lane.header));
    const sentence = this.bestSentence();
    if (sentence && sentence !== this.parts.best.textContent) put(this.parts.live, `${this.status} ${sentence}`);
    put(this.parts.best, sentence);
    this.show();
  }

  get isOver() {
    return ["finished", "stopped", "error"].includes(this.phase);
  }

  /** @param {Measure} measure */
  colourBy(measure) {
    this.measure = measure;
    this.root.dataset.measure = measure;
    this.schedule();
  }

  // How every cell is to be drawn; a run that another view shows too wears its colour here.
  looks() {
    const { measure, opened, reference } = this;
    const cells = this.rows.flat();
    const values = cells.map(({ lane }) => MEASURES[measure](lane, reference.lane));
    const range = rangeOf(measure, values);
    const marks = this.marks();
    this.legend.draw(measure, range);
    /**
     * @param {Cell} cell
     * @param {number} value
     * @returns {[Cell, CellLook]}
     */
    const look = (cell, value) => {
      const isOpened = cell === opened;
      const colour = isOpened || runColours.isKept(cell.lane) ? runColours.placeOf(cell.lane) : null;
      return [cell, { level: levelOf(value, range), mark: marks.get(cell) || "", isOpened, colour }];
    };
    return new Map([look(reference, NaN), ...cells.map((cell, i) => look(cell, values[i]))]);
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

/**
 * @param {HTMLElement} element
 * @param {{ value: string }} props
 * @param {(name: string, changed: () => void) => void} watch
 * @param {(run: string) => Promise<string>} [missed]
 */
export const mountGridView = (element, props, watch, missed) => mountView(GridView, element, props, watch, missed);

/** @type {[measure: Measure, title: string][]} */
const TITLES = [
  ["tpf", "tokens per forward"],
  ["agreement", "agreement with AR"],
  ["speed", "speed against AR"],
];
/** @type {Record<Measure, string>} */
const WORDS = {
  tpf: "Tokens per forward: how many tokens one pass of the model wrote, on average; plain AR writes one.",
  agreement: "Agreement: the share of the tokens that plain AR wrote too, in the same order.",
  speed: "Speed: times AR's tokens per second of decoding. Every cell is one run, and short runs vary.",
};
/** @type {Record<Measure, (value: number) => string>} */
const SHOWN = { tpf: figure, agreement: (value) => `${percent(value)} %`, speed: (value) => `${figure(value)}×` };

/**
 * Radio buttons, so that the arrow keys choose.
 * @param {HTMLElement} element
 * @param {(measure: Measure) => void} choose
 */
function buildChooser(element, choose) {
  const group = make("fieldset");
  group.append(make("legend", "", "Coloured by"));
  for (const [measure, title] of TITLES) {
    const label = make("label");
    const radio = make("input");
    Object.assign(radio, { type: "radio", name: "gv-measure", value: measure, checked: measure === TITLES[0][0] });
    radio.addEventListener("change", () => choose(measure));
    label.append(radio, make("span", "", title));
    group.append(label);
  }
  element.replaceChildren(group);
}

class Legend {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.keys = Array.from({ length: NUM_LEVELS }, (_, i) => {
      const key = make("i", "gv-key rv-num");
      key.dataset.level = String(i + 1);
      return key;
    });
    const keys = make("span", "gv-keys");
    keys.append(...this.keys);
    this.words = make("span");
    const marks = Object.keys(MARKS).map((mark) => make("span", "", `${MARKS[mark]} ${MARK_WORDS[mark]}`));
    element.replaceChildren(keys, this.words, ...marks);
  }

  /**
   * Each key says from where on it is used.
   * @param {Measure} measure
   * @param {[low: number, high: number]} range
   */
  draw(measure, [low, high]) {
    this.keys.forEach((key, i) => put(key, SHOWN[measure](low + ((high - low) * i) / NUM_LEVELS)));
    put(this.words, WORDS[measure]);
  }
}
