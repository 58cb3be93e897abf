// The Compare view: the tray of pinned runs, the comparison of the ticked ones, and import and export of files.

import { fill, find, make, put, watchTheme } from "../../core/dom.js";
import { textBlob } from "../../core/files.js";
import { allStepsCsv } from "../../export/files.js";
import { exportMenu, fileOf } from "../../export/menu.js";
import { Comparison } from "./comparison.js";
import { LETTERS } from "./figures.js";
import { importFiles, trayText } from "./import.js";
import { closeRun, openRun, openedPin, pinnedRun } from "./pin.js";
import { Fold, Row, groupsOf } from "./rows.js";
import { samples, samplesText } from "./samples.js";
import { tray } from "./tray.js";

const TOO_MANY = `At most ${LETTERS.length} runs can be compared at a time. Untick one first.`;
const HOW = "To compare your own runs, press Pin above a text in Live, or drop trace files (.jsonl) here.";

// Returns the text for an empty tray: which recorded runs are compared instead, and how to pin runs.
const emptyText = () => `${samplesText()} ${HOW}`.trim();

export class CompareView {
  /** @type {PinRow[]} */
  bare = []; // rows without figures, which are drawn later
  /** @type {Map<Pin, PinRow>} */
  rows = new Map();
  /** @type {Set<Pin>} */
  ticked = new Set();
  /** @type {Pin} */
  removed;
  /** @type {number | null} */
  timer;

  /**
   * judge: sends an imported trace to the server and returns its answer.
   * @param {HTMLElement} root
   * @param {Judge} judge
   */
  constructor(root, judge) {
    this.root = root;
    this.judge = judge;
    /** @type {Map<string, Fold>} */
    this.folds = new Map();
    this.list = find(root, ".cv-list");
    this.said = find(root, ".cv-said");
    this.undo = find(root, ".cv-undo");
    this.comparison = new Comparison(root);
    find(root, ".cv-head").append(exportMenu(() => this.offers(), "Export all"));
    find(this.undo, "button").addEventListener("click", () => this.restore());
    this.takeFiles();
    watchTheme(root, () => this.comparison.recolour());
    tray().listen(() => this.draw());
    this.draw();
  }

  draw() {
    const { pins } = tray();
    for (const pin of pins) {
      const known = this.rows.get(pin);
      known?.renew();
      if (known) continue;
      const row = new Row(pin, this);
      this.rows.set(pin, row);
      this.bare.push(row);
    }
    this.describe();
    for (const pin of [...this.rows.keys()]) {
      if (pins.includes(pin)) continue;
      this.rows.delete(pin);
      this.ticked.delete(pin);
    }
    this.arrange();
    this.root.dataset.pins = String(pins.length);
    const empty = find(this.root, ".cv-empty");
    empty.hidden = pins.length > 0;
    put(empty, emptyText());
    if (tray().store.why) this.say(tray().store.why);
    this.drawTicks();
  }

  // Arranges the rows in the order of the tray. Runs with the same text share one row.
  arrange() {
    const before = this.folds;
    this.folds = new Map();
    const pins = tray().pins.filter((pin) => this.rows.has(pin)); // a pin has no row while it is being stored
    const nodes = [...groupsOf(pins)].map(([key, group]) => {
      const rows = group.map((pin) => this.rowOf(pin).element);
      if (group.length < 2) return rows[0];
      const fold = before.get(key) || new Fold((pin, isOn) => this.tick(pin, isOn));
      fold.show(group, rows);
      this.folds.set(key, fold);
      return fold.element;
    });
    fill(this.list, nodes);
  }

  /**
   * @param {Pin} pin
   * @returns {PinRow}
   */
  rowOf(pin) {
    return /** @type {PinRow} */ (this.rows.get(pin));
  }

  // Draws the figures of new rows, one row per timer call: parsing a long trace takes a moment, and the page should
  // stay responsive.
  describe() {
    if (this.timer || !this.bare.length) return;
    this.timer = setTimeout(() => {
      this.timer = null;
      this.bare.shift()?.describe();
      if (!this.bare.length) this.arrange();
      this.describe();
    });
  }

  get compared() {
    return tray().pins.filter((pin) => this.ticked.has(pin));
  }

  /** @param {boolean} [isNamed] */
  drawTicks(isNamed = false) {
    const { compared } = this;
    const opened = openedPin();
    for (const [pin, row] of this.rows) row.mark(LETTERS[compared.indexOf(pin)] || "", pin.id === opened);
    for (const fold of this.folds.values()) fold.mark(this.ticked);
    const open = tray().pins.length ? "Tick two or more runs to compare them." : "";
    put(find(this.root, ".cv-hint"), [open, "Tick one more run to compare."][compared.length] ?? "");
    this.comparison.show(tray().pins.length ? compared : samples(), isNamed);
  }

  /**
   * @param {Pin} pin
   * @param {boolean} isOn
   */
  tick(pin, isOn) {
    if (isOn && this.ticked.size >= LETTERS.length) this.say(TOO_MANY);
    else if (isOn) this.ticked.add(pin);
    else this.ticked.delete(pin);
    this.drawTicks();
  }

  /**
   * @param {Pin} pin
   * @param {Partial<PinRecord>} changes
   */
  async change(pin, changes) {
    this.say(await tray().change(pin, changes));
    if (changes.name !== undefined) this.drawTicks(this.ticked.has(pin));
  }

  /** @param {Pin} pin */
  open(pin) {
    if (openedPin() === pin.id) closeRun();
    else openRun(pinnedRun(pin));
    this.drawTicks();
  }

  /** @param {Pin} pin */
  async remove(pin) {
    const index = tray().pins.indexOf(pin);
    if (openedPin() === pin.id) closeRun();
    this.removed = pin;
    put(find(this.undo, "span"), `“${pin.name}” was deleted.`);
    this.undo.hidden = false;
    await tray().remove(pin);
    const next = tray().pins[Math.min(index, tray().pins.length - 1)];
    ((next && this.rows.get(next)?.name) || find(this.undo, "button")).focus();
  }

  async restore() {
    this.undo.hidden = true;
    this.say(await tray().restore(this.removed));
    this.rows.get(this.removed)?.name.focus();
  }

  /** @param {string} sentence */
  say(sentence) {
    put(this.said, sentence || "");
  }

  offers() {
    const { pins } = tray();
    if (!pins.length) return [];
    const files = [
      fileOf("JSONL", "traces with names, notes and ratings", "tray.jsonl", () =>
        textBlob(trayText(pins), "application/x-ndjson"),
      ),
      fileOf("CSV", "table, one row per pass", "tray.csv", () => textBlob(allStepsCsv(pins), "text/csv")),
    ];
    return [{ label: "All runs", files }];
  }

  takeFiles() {
    const { root } = this;
    const input = /** @type {HTMLInputElement} */ (find(root, ".cv-files"));
    find(root, ".cv-import").addEventListener("click", () => input.click());
    input.addEventListener("change", async () => {
      await this.bring([...(input.files || [])]);
      input.value = "";
    });
    /** @param {DragEvent} event */
    const isFiles = (event) => Boolean(event.dataTransfer?.types.includes("Files"));
    root.addEventListener("dragover", (event) => {
      if (!isFiles(event)) return;
      event.preventDefault();
      root.classList.add("cv-dropping");
    });
    root.addEventListener("dragleave", (event) => {
      if (!root.contains(/** @type {Node | null} */ (event.relatedTarget))) root.classList.remove("cv-dropping");
    });
    root.addEventListener("drop", (event) => {
      if (!isFiles(event)) return;
      event.preventDefault();
      root.classList.remove("cv-dropping");
      this.bring([...(event.dataTransfer?.files || [])]);
    });
  }

  /** @param {File[]} files */
  async bring(files) {
    if (!files.length) return;
    this.say(`Reading ${files.length === 1 ? files[0].name : `${files.length} files`}…`);
    const { added, sentences } = await importFiles(files, this.judge, tray(), Number(this.root.dataset.mostChars));
    find(this.root, ".cv-refused").replaceChildren(...sentences.map((sentence) => make("li", "", sentence)));
    this.say(added ? `${added} ${added === 1 ? "run was" : "runs were"} imported.` : "Nothing was imported.");
  }
}

/**
 * Mounts the view; called by the component's js_on_load. `server.judge` is the function passed to CompareView
 * (app/ui/views.py).
 * @param {HTMLElement} element
 * @param {{ judge: Judge }} server
 */
export function mountCompareView(element, server) {
  const root = find(element, ".mars-compare");
  root.compareView = new CompareView(root, (text) => server.judge(text));
}
