// Beneath the heat map: which measure colours it, and what its colours and marks mean.

import { make, put } from "../../core/dom.js";
import { figure } from "../../core/words.js";
import { NUM_LEVELS } from "./folds.js";
import { MARKS, MARK_WORDS, percent } from "./words.js";

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
export function buildChooser(element, choose) {
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

export class Legend {
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
