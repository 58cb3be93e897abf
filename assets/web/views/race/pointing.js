// What happens when the visitor points at a text or a chart: the pass is highlighted in both.

import { put } from "../../core/dom.js";
import { joined } from "../../core/words.js";

export class Pointing {
  /** @param {RaceView} view */
  constructor(view) {
    this.view = view;
    this.isByKey = false;
    /** @type {TokenView | undefined} */
    this.lit = undefined;
  }

  /**
   * @param {TokenView} text
   * @param {number} index
   * @param {string} how "pointer" or "keyboard"
   */
  token({ lane, tokens }, index, how) {
    const { charts, voice } = this.view;
    this.isByKey = how === "keyboard";
    charts.cursor({ lane, step: lane.tokens[index].step.index });
    if (this.isByKey) put(voice.element, joined(lane.tokenName(lane.tokens[index].id), tokens[index].title));
  }

  /**
   * @param {Lane} lane
   * @param {number} index
   */
  step(lane, index) {
    const { charts, playhead } = this.view;
    const { view } = this.view.paneOf(lane);
    view.highlight(index);
    if (lane.end && index < playhead.shown(lane)) view.reveal(view.chunks[index]);
    charts.cursor({ lane, step: index });
    this.lit = view;
  }

  /**
   * Moves the focus from a chart to the text of a pass, where the arrow keys and Enter then work. The drawer would hide
   * the chart.
   * @param {Lane} lane
   * @param {number} index
   */
  choose(lane, index) {
    const { view } = this.view.paneOf(lane);
    const last = view.shown.tokens.length - 1;
    view.element.focus({ preventScroll: true });
    if (last >= 0) view.go(Math.min(last, lane.steps[index].first));
  }

  leave() {
    this.isByKey = false;
    this.view.charts.cursor(null);
    this.lit?.highlight(-1);
  }
}
