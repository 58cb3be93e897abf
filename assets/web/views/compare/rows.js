// One pinned run in the tray: its name, rating and note to edit, its figures, what can be done with it.
// Names and notes are values of inputs, never markup. What is changed is told to `report`.

import { fill, find, make, put } from "../../core/dom.js";
import { folds, headerOf } from "../../core/folds.js";
import { figure } from "../../core/words.js";
import { chartsOffer, exportMenu, laneOffer } from "../../export/menu.js";
import { settingsText } from "../../text/card.js";

const PAUSE = 400; // milliseconds without a key before what was typed is kept
const MOST_NAME = 120;
const MOST_NOTE = 2000;

/**
 * By which method a run was made, and with what.
 * @param {Lane} lane
 */
const methodText = (lane) => [lane.facts.title, settingsText(lane.settings, lane.steps.at(-1)?.blockSize)].join(" · ");

export class Row {
  /** @type {HTMLInputElement} */
  name;
  /** @type {HTMLTextAreaElement} */
  note;
  /** @type {HTMLInputElement} */
  box;
  /** @type {HTMLButtonElement} */
  opener;

  /**
   * report: {change(pin, changes), tick(pin, isOn), open(pin), remove(pin)}
   * @param {Pin} pin
   * @param {HTMLElement} root
   * @param {RowReport} report
   */
  constructor(pin, root, report) {
    this.pin = pin;
    this.root = root;
    this.report = report;
    this.element = make("li", "cv-row");
    this.element.dataset.pin = pin.id;
    this.element.dataset.colour = String(pin.record.colour);
    this.letter = make("span", "cv-letter");
    this.facts = make("p", "cv-facts rv-num");
    this.figures = make("p", "cv-figures rv-num");
    this.element.append(this.top(), make("span", "cv-run", pin.label), this.facts, this.bottom());
  }

  // What another window has changed, save in the field that is being written in.
  renew() {
    const { name, note, rating } = this.pin.record;
    if (document.activeElement !== this.name) this.name.value = name;
    if (document.activeElement !== this.note) this.note.value = note;
    /** @type {HTMLInputElement} */ (find(this.element, `.cv-rating input[value="${rating}"]`)).checked = true;
  }

  top() {
    const top = make("div", "cv-rowtop");
    this.box = make("input");
    this.box.type = "checkbox";
    this.box.addEventListener("change", () => this.report.tick(this.pin, this.box.checked));
    const compare = make("label", "cv-tick");
    compare.append(this.box, "compare", this.letter);
    this.name = make("input", "cv-name");
    this.name.value = this.pin.name;
    this.name.maxLength = MOST_NAME;
    this.name.setAttribute("aria-label", "Name of this run");
    this.keep(this.name, "name");
    top.append(compare, this.name, this.figures);
    return top;
  }

  bottom() {
    const bottom = make("div", "cv-rowbottom");
    this.note = make("textarea", "cv-note");
    this.note.rows = 1;
    this.note.value = this.pin.record.note;
    this.note.maxLength = MOST_NOTE;
    this.note.placeholder = "Note";
    this.note.setAttribute("aria-label", "Note on this run");
    this.keep(this.note, "note");
    this.opener = this.button("Open", () => this.report.open(this.pin));
    bottom.append(
      this.note,
      this.rating(),
      this.opener,
      exportMenu(() => this.offers()),
      this.button("Delete", () => this.report.remove(this.pin)),
    );
    return bottom;
  }

  /**
   * @param {string} text
   * @param {() => void} act
   */
  button(text, act) {
    const button = make("button", "", text);
    button.type = "button";
    button.addEventListener("click", act);
    return button;
  }

  // 1 to 5, or none: radio buttons, so that the arrow keys choose.
  rating() {
    const group = make("fieldset", "cv-rating");
    group.append(make("legend", "", "Rating"));
    for (let rating = 0; rating <= 5; rating += 1) {
      const label = make("label");
      const radio = make("input");
      radio.type = "radio";
      radio.name = `rating-${this.pin.id}`;
      radio.value = String(rating);
      radio.checked = rating === this.pin.record.rating;
      radio.setAttribute("aria-label", rating ? `${rating} of 5` : "no rating");
      radio.addEventListener("change", () => this.report.change(this.pin, { rating }));
      label.append(radio, make("span", "", rating ? String(rating) : "–"));
      group.append(label);
    }
    return group;
  }

  /**
   * What is typed is kept a moment after the last key, and at once when the field is left.
   * @param {HTMLInputElement | HTMLTextAreaElement} input
   * @param {"name" | "note"} field
   */
  keep(input, field) {
    let timer = 0;
    const now = () => {
      clearTimeout(timer);
      if (this.pin.record[field] !== input.value) this.report.change(this.pin, { [field]: input.value });
    };
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(now, PAUSE);
    });
    input.addEventListener("change", now);
  }

  offers() {
    const { lane } = this.pin;
    return [laneOffer(lane, this.pin.name, this.root), chartsOffer(lane, [lane], this.root)];
  }

  // What the trace says of the run; folding a long one takes a moment, so the view asks one row at a time.
  describe() {
    const { lane } = this.pin;
    const header = headerOf(lane);
    put(
      this.facts,
      [
        methodText(lane),
        header.checkpoint,
        (header.date || "").slice(0, 16).replace("T", " "),
        lane.end ? "" : "not ended",
        this.pin.record.isImported ? "imported" : "",
      ]
        .filter(Boolean)
        .join(" · "),
    );
    put(this.figures, `${figure(folds.perForward(lane))} TPF · ${figure(folds.perSecond(lane))} tok/s`);
  }

  /**
   * @param {string} letter
   * @param {boolean} isOpen
   */
  mark(letter, isOpen) {
    this.box.checked = Boolean(letter);
    put(this.letter, letter);
    put(this.opener, isOpen ? "Close" : "Open");
    this.opener.setAttribute("aria-expanded", String(isOpen));
  }
}

/**
 * Pins in their order, those of one text together where the first of them stands.
 * @param {Pin[]} pins
 */
export function groupsOf(pins) {
  /** @type {Map<string, Pin[]>} */
  const groups = new Map();
  for (const pin of pins) {
    const key = pin.textKey || pin.id;
    groups.set(key, [...(groups.get(key) || []), pin]);
  }
  return groups;
}

// Runs of the tray that wrote the same text, as one row: how many they are, the settings of each, one tick for all of
// them. Opened, it shows the rows themselves.
export class Fold {
  /** @param {(pin: Pin, isOn: boolean) => void} tick */
  constructor(tick) {
    /** @type {Pin[]} */
    this.pins = [];
    this.element = make("li", "cv-fold");
    this.box = make("input");
    this.box.type = "checkbox";
    this.box.addEventListener("change", () => {
      const { checked } = this.box; // each tick draws the box anew
      for (const pin of this.pins) tick(pin, checked);
    });
    const compare = make("label", "cv-tick");
    compare.append(this.box, "compare all");
    this.button = make("button", "cv-foldbutton");
    this.button.type = "button";
    this.button.addEventListener("click", () => this.open(this.button.getAttribute("aria-expanded") !== "true"));
    this.what = make("span", "cv-foldprompt");
    this.settings = make("ul", "cv-foldruns rv-num");
    this.rows = make("ul", "cv-foldrows");
    const head = make("div", "cv-foldhead");
    head.append(compare, this.button, this.what, this.settings);
    this.element.append(head, this.rows);
    this.open(false);
  }

  /** @param {boolean} isOpen */
  open(isOpen) {
    this.rows.hidden = !isOpen;
    this.button.setAttribute("aria-expanded", String(isOpen));
  }

  /**
   * @param {Pin[]} pins
   * @param {HTMLElement[]} rows
   */
  show(pins, rows) {
    this.pins = pins;
    put(this.button, `${pins.length} runs wrote the same text`);
    put(this.what, headerOf(pins[0].lane).prompt || "");
    this.settings.replaceChildren(...pins.map(settingsOf));
    fill(this.rows, rows);
  }

  /** @param {Set<Pin>} ticked */
  mark(ticked) {
    const num = this.pins.filter((pin) => ticked.has(pin)).length;
    this.box.checked = num === this.pins.length;
    this.box.indeterminate = num > 0 && num < this.pins.length;
  }
}

/** @param {Pin} pin */
function settingsOf({ label, lane, record }) {
  const item = make("li", "");
  item.dataset.colour = String(record.colour);
  item.append(make("span", "cv-run", label), `${methodText(lane)} · ${figure(folds.perForward(lane))} TPF`);
  return item;
}
