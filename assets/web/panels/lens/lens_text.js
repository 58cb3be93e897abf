// A text in other groups than those in which it was written: classes on its tokens, so that nothing moves.

import { beginsWithSpace, countPlace } from "../text/counts.js";

export class LensText {
  /** @param {TokenView} view */
  constructor(view) {
    this.view = view;
    /** @type {string[]} */
    this.drawn = []; // class of each token, so that dragging touches only what changes
  }

  /** @param {LensGroup[]} groups */
  draw(groups) {
    const { element, lane, tokens } = this.view;
    element.classList.add("rv-lens");
    for (const { first, count, isGuess, isFirst } of groups) {
      const fill = count > 1 ? `rv-l${Math.min(count, 5)}` : "";
      const place = count > 1 ? countPlace(lane.tokens, first, count) : -1;
      const gap = beginsWithSpace(lane.tokens[first]) ? "rv-begin" : "rv-mid";
      for (let i = first; i < first + count; i += 1) {
        const drawn = lane.tokens[i].isEnd ? "" : fill;
        const kind = [drawn, drawn && isGuess && "rv-guess", i === first && gap, isFirst && i === first && "rv-parts"];
        this.dress(i, tokens[i], kind.filter(Boolean).join(" "), i === place ? String(count) : "");
      }
    }
  }

  /**
   * @param {number} index
   * @param {HTMLElement} node
   * @param {string} kind
   * @param {string} count
   */
  dress(index, node, kind, count) {
    const state = `${kind}|${count}`;
    if (this.drawn[index] === state) return;
    node.classList.remove(...(this.drawn[index] || "").split("|")[0].split(" ").filter(Boolean));
    node.classList.add(...kind.split(" ").filter(Boolean));
    this.drawn[index] = state;
    if (count) node.dataset.l = count;
    else delete node.dataset.l;
  }

  clear() {
    this.view.element.classList.remove("rv-lens");
    this.drawn.forEach((_, index) => this.dress(index, this.view.tokens[index], "", ""));
    this.drawn = [];
  }
}
