// The grid view: sends the received lines to the cells of the heat map and its chart, names the best cells, and opens a
// cell as a run in the race view below.

import { runColours } from "../../core/colours.js";
import { find, make, put } from "../../core/dom.js";
import { PhaseView, mountOf } from "../../core/line_view.js";
import { Lane } from "../../core/trace.js";
import { valueOf } from "../../core/wire.js";
import { counted, environment, figure } from "../../core/words.js";
import { Asked, onceText } from "../../text/asked.js";
import { Cells } from "./cells.js";
import {
  MARKS,
  MARK_WORDS,
  MEASURES,
  NUM_LEVELS,
  cellName,
  fastest,
  fastestSentence,
  gridFinding,
  isDone,
  levelOf,
  percent,
  rangeOf,
} from "../../folds/grid.js";
import { Frontier } from "./frontier.js";

const RACE = "#grid-race .mars-race"; // the race view for the opened cell

class GridView extends PhaseView {
  static what = "This grid";
  static empty =
    "Press Run to decode the prompt with plain AR, one token per forward pass, then with MARS for every τ (the confidence at which a token is accepted) and B (proposals per pass), in several rounds. Any cell can be opened as a run.";

  /** @type {Map<string, Cell>} */
  named;
  /** @type {Cell[][]} */
  rows;
  /** @type {Cell} */
  reference;
  /** @type {Cell | null} */
  opened;
  /** @type {number} */
  shown;
  /** @type {GridHead} */
  head;
  /** @type {Measure} */
  measure = "tpf";

  /** @param {ConstructorParameters<typeof PhaseView>} given */
  constructor(...given) {
    super(...given);
    const { root } = this;
    this.best = find(root, ".gv-best");
    this.caption = find(root, ".gv-opened");
    this.env = find(root, ".gv-env");
    this.asked = new Asked(find(root, ".rv-asked"));
    this.cells = new Cells(find(root, ".gv-table"), (cell) => this.open(cell));
    this.frontier = new Frontier(find(root, ".gv-frontier"), {
      open: (cell) => this.open(cell),
      point: (cell) => this.cells.point(cell),
    });
    this.legend = new Legend(find(root, ".gv-legend"));
    buildChooser(find(root, ".gv-measures"), (measure) => this.colourBy(measure));
    new ResizeObserver(() => this.schedule()).observe(find(root, ".gv-frontier"));
    this.watchTheme();
    this.clear();
  }

  clear() {
    this.start({ run: "", prompt: "", rows: [], columns: [] });
    this.showOpening();
  }

  /** @param {GridHead} head */
  start(head) {
    this.head = head;
    this.close();
    /** @type {(name: string, row: GridRow | null, blockSize: number) => Cell} */
    const cell = (name, row, blockSize) => ({
      name,
      row,
      blockSize,
      rounds: null,
      lane: new Lane({ lane: row ? "mars" : "ar", title: row ? "MARS" : "plain AR" }),
    });
    this.reference = cell("ar", null, 0);
    this.rows = head.rows.map((row, r) => head.columns.map((b, c) => cell(`r${r}c${c}`, row, b)));
    this.cells.build([[this.reference], ...this.rows], head.columns, head.prompt);
    const all = [this.reference, ...this.rows.flat()];
    this.named = new Map(all.map((known) => [known.name, known]));
    this.frontier.build(all);
    this.begin(head);
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
    else if (!cell) throw new Error(`The grid has no cell ${target}.`);
    else if (target === "verdict") cell.lane.verdict = data.right;
    else if (target === "rounds") cell.rounds = data;
    else cell.lane.push(data, text);
  }

  draw() {
    this.root.dataset.run = String(this.head.run);
    this.root.dataset.cells = String(this.rows.flat().length);
    const { header } = this.reference.lane;
    this.asked.draw(this.rows.length ? this.head.prompt : null, header ? onceText(header.settings) : "", this.wanted);
    if (!this.rows.length) return;
    const looks = this.looks();
    this.cells.draw(looks);
    this.frontier.draw(this.reference, looks);
    put(this.env, environment(header));
    const sentence = this.bestSentence();
    this.showFinding(gridFinding(this.rows.flat(), this.reference));
    if (sentence && !this.feed.recorded && sentence !== this.best.textContent)
      put(this.live, `${this.status.textContent} ${sentence}`);
    put(this.best, sentence);
    this.show();
  }

  /** @param {Measure} measure */
  colourBy(measure) {
    this.measure = measure;
    this.root.dataset.measure = measure;
    this.schedule();
  }

  // Returns the style of every cell. The opened cell and cells with pinned runs also have the colour by which other
  // views show the run.
  looks() {
    const { measure, opened, reference } = this;
    const cells = this.rows.flat();
    const values = cells.map((cell) => MEASURES[measure](cell, reference));
    const range = rangeOf(measure, values);
    const marks = this.marks();
    this.legend.draw(measure, range);
    /** @type {(cell: Cell, value: number) => [Cell, CellLook]} */
    const look = (cell, value) => {
      const isOpened = cell === opened;
      const colour = isOpened || runColours.isKept(cell.lane) ? runColours.placeOf(cell.lane) : null;
      return [cell, { level: levelOf(value, range), mark: marks.get(cell) || "", isOpened, colour }];
    };
    return new Map([look(reference, NaN), ...cells.map((cell, i) => look(cell, values[i]))]);
  }

  // Returns the marks for the best cells: the best cell of each row that has ended and, when all rows have ended, the
  // best of all cells.
  marks() {
    const marks = new Map();
    for (const cells of this.rows) {
      if (cells.length > 1 && cells.every((cell) => isDone(cell.lane) && cell.rounds)) {
        const best = fastest(cells);
        if (best) marks.set(best, "row");
      }
    }
    const best = this.isOver ? fastest(this.rows.flat()) : undefined;
    if (best) marks.set(best, "all");
    return marks;
  }

  get heading() {
    return `${counted(this.rows.flat().length, "setting")} compared with plain AR`;
  }

  bestSentence() {
    return this.isOver ? fastestSentence(this.rows.flat(), this.reference) : "";
  }

  /** @param {Cell} cell */
  open(cell) {
    if (!cell.lane.header) return;
    this.opened = cell;
    const against = cell === this.reference ? "" : " and plain AR";
    this.caption.hidden = false;
    put(this.caption, `Shown below: ${cellName(cell)}${against}.`);
    put(this.live, `${cellName(cell)}${against} is shown below the grid.`);
    this.shown = -1;
    this.show();
    this.schedule();
    if (this.caption.getBoundingClientRect().top <= window.innerHeight * 0.7) return;
    const reveal = () => this.caption.scrollIntoView({ block: "start" });
    requestAnimationFrame(() => requestAnimationFrame(reveal)); // once the run below has its height
  }

  close() {
    this.opened = null;
    this.caption.hidden = true;
    document.querySelector(RACE)?.lineView?.read("");
  }

  // Shows the opened cell and plain AR in the race view. Called again when the cell has new lines.
  show() {
    const { opened, reference } = this;
    const race = document.querySelector(RACE)?.lineView;
    if (!opened || !race) return;
    const cells = opened === reference ? [reference] : [opened, reference];
    const count = cells.reduce((sum, { lane }) => sum + lane.lines.length + (lane.verdict === null ? 0 : 1), 0);
    if (count === this.shown) return;
    this.shown = count;
    const head = {
      run: `${this.head.run}/${opened.name}`,
      lanes: cells.map(({ lane }) => ({ lane: lane.name, title: lane.title })),
      pace: 0,
    };
    const order = cells.map(({ lane }) => lane).reverse(); // plain AR ran first, so new lines are only added at the end
    race.read(valueOf(head, order));
  }
}

export const mountGridView = mountOf(GridView);

/** @type {[measure: Measure, title: string][]} */
const TITLES = [
  ["tpf", "tokens per pass"],
  ["agreement", "agreement with AR"],
  ["speed", "speed relative to AR"],
];
/** @type {Record<Measure, string>} */
const WORDS = {
  tpf: "Tokens per pass: how many tokens one forward pass wrote, on average. Plain AR writes one.",
  agreement: "Agreement: the share of tokens that plain AR also wrote, in the same order.",
  speed: "Speed: decoding speed relative to AR's, median of the rounds. AR is timed again for each row of each round.",
};
/** @type {Record<Measure, (value: number) => string>} */
const SHOWN = { tpf: figure, agreement: (value) => `${percent(value)} %`, speed: (value) => `${figure(value)}×` };

/**
 * Builds the choice of the number that colours the cells, as radio buttons, so that arrow keys change it.
 * @param {HTMLElement} element
 * @param {(measure: Measure) => void} choose
 */
function buildChooser(element, choose) {
  const labels = TITLES.map(([measure, title], i) => {
    const radio = make("input", { type: "radio", name: "gv-measure", value: measure });
    radio.checked = i === 0;
    radio.addEventListener("change", () => choose(measure));
    return make("label", "", radio, make("span", "", title));
  });
  element.replaceChildren(make("fieldset", "", make("legend", "", "Colour by"), ...labels));
}

class Legend {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.keys = Array.from({ length: NUM_LEVELS }, (_, i) =>
      make("i", { class: "gv-key rv-num", "data-level": i + 1 }),
    );
    this.words = make("span");
    const marks = Object.keys(MARKS).map((mark) => make("span", "", `${MARKS[mark]} ${MARK_WORDS[mark]}`));
    element.replaceChildren(make("span", "gv-keys", ...this.keys), this.words, make("span", "gv-marks", ...marks));
  }

  /**
   * Draws the legend of the colour ramp: each colour with the lowest value that it represents.
   * @param {Measure} measure
   * @param {[low: number, high: number]} range
   */
  draw(measure, [low, high]) {
    this.keys.forEach((key, i) => put(key, SHOWN[measure](low + ((high - low) * i) / NUM_LEVELS)));
    put(this.words, WORDS[measure]);
  }
}
