// Ticks in the margin of a text, where a slider bit.

import { make } from "../../core/dom.js";
import { moveText } from "./card.js";

export class MoveMarks {
  /** @param {Lane} lane */
  constructor(lane) {
    this.lane = lane;
    this.num = 0; // moves that have their tick
    this.node = make("span");
  }

  /**
   * The tick that stands before a step, if there is one. The same move may still grow while a slider is dragged.
   * @param {Step} step
   */
  upTo(step) {
    const { moves } = this.lane;
    const last = moves[this.num - 1];
    if (last && last.until >= step.index) this.node.textContent = moveText(last);
    if (this.num === moves.length || moves[this.num].step > step.index) return [];
    const move = moves[this.num];
    this.num += 1;
    this.node = make("span", "rv-move", moveText(move));
    this.node.title = `${moveText(move)} from forward ${move.step + 1} on`;
    this.node.setAttribute("aria-hidden", "true");
    return [this.node];
  }
}
