// What lies over a chart without being drawn by plotly, so that moving it redraws nothing: the forward pointed at, the
// chosen one, and a veil over what is later than the place in a replay. Knows times and a plot's axes.

import { make } from "../../core/dom.js";

export class Overlay {
  /** @param {PlotNode} node */
  constructor(node) {
    this.node = node;
    this.cursor = make("div", "rv-cursor");
    this.chosen = make("div", "rv-cursor rv-cursor-chosen");
    this.later = make("div", "rv-later");
    for (const mark of [this.later, this.chosen, this.cursor]) {
      mark.hidden = true;
      node.append(mark); // inside the plot: its own offsets place them, so that moving them asks for no layout
    }
  }

  /**
   * The time of one forward, at least a pixel wide; null hides the mark.
   * @param {HTMLElement} mark
   * @param {Span | null} span
   */
  place(mark, span) {
    const full = this.node._fullLayout;
    mark.hidden = true;
    if (!span || !full || !full.xaxis || !full.yaxis) return;
    const { xaxis, yaxis } = full;
    const left = Math.max(0, xaxis.l2p(span.from));
    const right = Math.min(xaxis._length, xaxis.l2p(span.to));
    if (right < left) return;
    mark.style.left = `${xaxis._offset + left}px`;
    mark.style.width = `${Math.max(1, right - left)}px`;
    mark.style.top = `${yaxis._offset}px`;
    mark.style.height = `${yaxis._length}px`;
    mark.hidden = false;
  }

  /** @param {number | null} time null where nothing is later */
  veil(time) {
    const { later, node } = this;
    const full = node._fullLayout;
    later.hidden = time === null || !full || !full.xaxis;
    if (later.hidden || time === null) return;
    const { xaxis, yaxis } = full;
    const left = Math.max(0, Math.min(xaxis._length, xaxis.l2p(time)));
    later.style.transform = `translate(${xaxis._offset + left}px, ${yaxis._offset}px)`;
    later.style.width = `${xaxis._length - left}px`;
    later.style.height = `${yaxis._length}px`;
  }
}
