// The row of a pinned run in the tray: its editable name, rating and note, its figures and its actions. Names and notes
// are only used as values of inputs, never as markup.

import { attribute, button, fill, find, make, put } from "../../core/dom.js";
import { folds, headerOf, loopRemark } from "../../core/folds.js";
import { LIMITS } from "../../core/table.js";
import { figure, joined, minuteOf } from "../../core/words.js";
import { exportMenu, laneOffer } from "../../export/menu.js";
import { laneText } from "../../text/settings.js";

const PAUSE = 400; // milliseconds without a key press before typed text is stored

/** @param {Lane} lane */
const methodText = (lane) => [lane.facts.title, laneText(lane)].join(" · ");

export class Row {
  /**
   * report: called when the visitor changes, ticks, opens or deletes the run.
   * @param {Pin} pin
   * @param {RowReport} report
   */
  constructor(pin, report) {
    this.pin = pin;
    this.report = report;
    this.letter = make("span", "cv-letter");
    this.facts = make("p", "cv-facts rv-num");
    this.figures = make("p", "cv-figures rv-num");
    this.box = tickBox((isOn) => report.tick(pin, isOn));
    const name = { class: "cv-name", maxlength: LIMITS.pin.name, "aria-label": "Name of this run" };
    this.name = this.stored(make("input", name), "name");
    const note = {
      class: "cv-note",
      rows: 1,
      maxlength: LIMITS.pin.note,
      placeholder: "Note",
      "aria-label": "Note on this run",
    };
    this.note = this.stored(make("textarea", note), "note");
    this.opener = button("", "Open", () => report.open(pin));
    this.element = make(
      "li",
      { class: "cv-row", "data-pin": pin.id, "data-colour": String(pin.record.colour) },
      make("div", "cv-rowtop", make("label", "cv-tick", this.box, "compare", this.letter), this.name, this.figures),
      make("span", "cv-run", pin.label),
      this.facts,
      make(
        "div",
        "cv-rowbottom",
        this.note,
        this.rating(),
        this.opener,
        exportMenu(() => [laneOffer(pin.lane, pin.name)]),
        button("", "Delete", () => report.remove(pin)),
      ),
    );
  }

  // Updates the row after another window has changed the run's record. The field with the focus is not changed.
  renew() {
    const { name, note, rating } = this.pin.record;
    if (document.activeElement !== this.name) this.name.value = name;
    if (document.activeElement !== this.note) this.note.value = note;
    /** @type {HTMLInputElement} */ (find(this.element, `.cv-rating input[value="${rating}"]`)).checked = true;
  }

  // Builds the rating, 1 to 5 or none, as radio buttons, so that arrow keys change it.
  rating() {
    const labels = Array.from({ length: LIMITS.pin.rating + 1 }, (_, rating) => {
      const label = rating ? `${rating} of ${LIMITS.pin.rating}` : "no rating";
      const radio = make("input", { type: "radio", name: `rating-${this.pin.id}`, value: rating, "aria-label": label });
      radio.checked = rating === this.pin.record.rating;
      radio.addEventListener("change", () => this.report.change(this.pin, { rating }));
      return make("label", "", radio, make("span", "", rating ? String(rating) : "–"));
    });
    return make("fieldset", "cv-rating", make("legend", "", "Rating"), ...labels);
  }

  /**
   * Makes an input store its text in a field of the record: shortly after the last key press, and at once when the
   * input loses the focus. Returns the input.
   * @template {HTMLInputElement | HTMLTextAreaElement} I
   * @param {I} input
   * @param {"name" | "note"} field
   */
  stored(input, field) {
    input.value = this.pin.record[field];
    let timer = 0;
    const save = () => {
      clearTimeout(timer);
      if (this.pin.record[field] !== input.value) this.report.change(this.pin, { [field]: input.value });
    };
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(save, PAUSE);
    });
    input.addEventListener("change", save);
    return input;
  }

  // Shows the settings and figures of the run. This parses the whole trace, which can take a moment, so the view calls
  // it for one row at a time.
  describe() {
    const { lane } = this.pin;
    const header = headerOf(lane);
    const marks = [lane.end ? "" : "not ended", this.pin.record.isImported ? "imported" : ""];
    put(this.facts, joined(methodText(lane), header.checkpoint, minuteOf(header), ...marks));
    put(this.figures, `${paceOf(lane)} · ${figure(folds.perSecond(lane))} tok/s`);
  }

  /**
   * @param {string} letter
   * @param {boolean} isOpen
   */
  mark(letter, isOpen) {
    this.box.checked = Boolean(letter);
    put(this.letter, letter);
    put(this.opener, isOpen ? "Close" : "Open");
    attribute(this.opener, { "aria-expanded": isOpen });
  }
}

/** @param {(isOn: boolean) => void} tick */
function tickBox(tick) {
  const box = make("input", { type: "checkbox" });
  box.addEventListener("change", () => tick(box.checked));
  return box;
}

/**
 * Groups pins with the same text. The groups are in the order of their first pins.
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

// One row for several runs with the same text: their number, the settings of each, and one box that ticks all of them.
// Its button expands the rows of the runs.
export class Fold {
  /** @param {(pin: Pin, isOn: boolean) => void} tick */
  constructor(tick) {
    /** @type {Pin[]} */
    this.pins = [];
    this.box = tickBox((isOn) => this.pins.forEach((pin) => tick(pin, isOn)));
    this.button = button("cv-foldbutton", "", () => this.open(Boolean(this.rows.hidden)));
    this.prompt = make("span", { class: "cv-foldprompt", dir: "auto" });
    this.settings = make("ul", "cv-foldruns rv-num");
    this.rows = make("ul", "cv-foldrows");
    const compare = make("label", "cv-tick", this.box, "compare all");
    const head = make("div", "cv-foldhead", compare, this.button, this.prompt, this.settings);
    this.element = make("li", "cv-fold", head, this.rows);
    this.open(false);
  }

  /** @param {boolean} isOpen */
  open(isOpen) {
    this.rows.hidden = !isOpen;
    attribute(this.button, { "aria-expanded": isOpen });
  }

  /**
   * @param {Pin[]} pins
   * @param {HTMLElement[]} rows
   */
  show(pins, rows) {
    this.pins = pins;
    put(this.button, `${pins.length} runs wrote the same text`);
    put(this.prompt, headerOf(pins[0].lane).prompt || "");
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

/** @param {Lane} lane */
const paceOf = (lane) => `${loopRemark(lane) && "until it loops: "}${figure(folds.perForward(lane))} tokens per pass`;

/** @param {Pin} pin */
const settingsOf = ({ label, lane, record }) =>
  make(
    "li",
    { "data-colour": String(record.colour) },
    make("span", "cv-run", label),
    `${methodText(lane)} · ${paceOf(lane)}`,
  );
