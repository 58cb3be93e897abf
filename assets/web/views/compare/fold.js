// Runs of the tray that wrote the same text, as one row: how many they are, the settings of each, one tick for all of
// them. Opened, it shows the rows themselves.

import { figure } from "../../core/words.js";
import { fill, make, put } from "../../core/dom.js";
import { folds, headerOf } from "../../core/folds.js";
import { methodText } from "./rows.js";

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
