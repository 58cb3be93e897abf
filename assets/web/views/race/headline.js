// The headline of a race and its three small figures. core/result.js decides what they say.

import { button, make, put } from "../../core/dom.js";
import { idleText } from "../../core/folds.js";
import { resultOf } from "../../core/result.js";
import { joined } from "../../core/words.js";

const MOVED = "settings were changed during the run";
const VARIES = "auto: other machines may take other passes";

export class Headline {
  /**
   * @param {HTMLElement} element
   * @param {() => void} openDifference opens the place where the texts differ
   */
  constructor(element, openDifference) {
    this.element = element;
    this.first = make("b");
    this.rest = make("span");
    this.different = button("rv-different", "", openDifference); // instead of `rest` if the texts differ
    this.figures = make("p", "rv-because rv-num");
    element.replaceChildren(make("p", "rv-saying rv-num", this.first, this.rest, this.different), this.figures);
    this.drawn = "";
  }

  /**
   * @param {Lane} main in its displayed state, as the others
   * @param {Lane[]} others
   * @param {boolean} isRecorded
   */
  draw(main, others, isRecorded) {
    const { kind, first, rest, figures } = resultOf(main, others, isRecorded);
    this.element.dataset.result = kind;
    put(this.first, first);
    const isDifferent = kind === "different";
    put(this.rest, isDifferent ? rest.slice(0, 2) : rest);
    put(this.different, isDifferent ? rest.slice(2) : "");
    this.different.hidden = !isDifferent;
    const { moves, settings } = main;
    const note = joined(moves.length > 0 && MOVED, idleText(main) || (settings?.block_size === "auto" && VARIES));
    const drawn = JSON.stringify([figures, note]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const shown = figures.map(({ key, value, name, numbers }) =>
      make(
        "span",
        { "data-key": key },
        make("b", "", value),
        name && ` ${name}`,
        numbers && make("small", "", numbers),
      ),
    );
    this.figures.replaceChildren(...shown, note && make("span", "", note));
  }
}
