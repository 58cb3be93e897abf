// What happens where a reader points, in a text or a chart: the card, the line in the charts, the lit forward.

import { put } from "../../core/dom.js";
import { endIds } from "../../panels/folds/why.js";
import { Masks } from "../../panels/text/masks.js";

export class Pointing {
  /** @param {RaceView} view */
  constructor(view) {
    this.view = view;
    this.isByKey = false;
    this.masks = new Masks();
    /** @type {TokenView | undefined} */
    this.lit = undefined;
  }

  /**
   * @param {TokenView} text
   * @param {number} index
   * @param {Element} anchor
   * @param {string} how
   */
  token(text, index, anchor, how) {
    const { card, charts, now, voice } = this.view;
    const { lane } = text;
    this.isByKey = how === "keyboard";
    const { left, right, top, bottom } = anchor.getClientRects()[0] || anchor.getBoundingClientRect();
    const lowest = this.masks.show(text, lane.tokens[index].step.index, endIds(now.lanes));
    card.token(lane, index, { left, right, top, bottom: lowest ?? bottom });
    charts.cursor({ lane, step: lane.tokens[index].step.index });
    if (this.isByKey) put(voice.element, card.element.innerText.replace(/\s+/g, " "));
  }

  /**
   * @param {Lane} lane
   * @param {number} index
   * @param {Anchor} point
   */
  step(lane, index, point) {
    const { card, charts, playhead } = this.view;
    const { view } = this.view.paneOf(lane);
    view.highlight(index);
    if (lane.end && index < playhead.shown(lane)) view.reveal(view.chunks[index]);
    charts.cursor({ lane, step: index });
    this.masks.show(view, index, endIds(this.view.now.lanes));
    card.step(lane, index, point);
    this.lit = view;
  }

  /**
   * A forward chosen in a chart; its text takes the focus, so that the keyboard goes on from there.
   * @param {Lane} lane
   * @param {number} index
   */
  choose(lane, index) {
    this.view.paneOf(lane).view.element.focus({ preventScroll: true });
    this.view.choose(lane, index);
  }

  leave() {
    this.isByKey = false;
    this.masks.hide();
    this.view.card.hide();
    this.view.charts.cursor(null);
    this.lit?.highlight(-1);
  }
}
