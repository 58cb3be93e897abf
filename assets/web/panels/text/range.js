// What the time axis says of a text: forwards outside of what is zoomed are dimmed, and where the other lane had ended a
// mark stands behind the token that this one had come to. Classes and attributes on nodes that are there: nothing moves.

import { beginOf } from "../charts/span.js";

export class TextRange {
  /** @param {TokenView} view */
  constructor(view) {
    this.view = view;
    /** @type {Span | null} */
    this.drawn = null;
    this.num = 0; // forwards that were looked at
    /** @type {HTMLElement | undefined} */
    this.marked = undefined;
  }

  /** @param {Span | null} span */
  draw(span) {
    const { chunks, lane } = this.view;
    if (span === this.drawn && (!span || this.num === chunks.length)) return;
    const from = span === this.drawn ? this.num : 0;
    for (let i = from; i < chunks.length; i += 1) chunks[i].classList.toggle("rv-out", isOut(lane.steps[i], span));
    this.drawn = span;
    this.num = chunks.length;
  }

  /**
   * Brings the first forward of what is zoomed into sight.
   * @param {Span | null} span
   */
  reveal(span) {
    const { chunks, lane } = this.view;
    const first = span ? lane.steps.findIndex((step) => !isOut(step, span)) : -1;
    if (first >= 0 && chunks[first]?.offsetParent) this.view.reveal(chunks[first]);
  }

  /** @param {{ first: Lane, tokens: number, time: number }} finish */
  finish({ first, tokens, time }) {
    const node = this.view.tokens[tokens - 1];
    if (node === this.marked || !node) return;
    if (this.marked) delete this.marked.dataset.finish;
    this.marked = node;
    node.dataset.finish = `${first.title} ended`;
    node.title = `${first.title} had ended here, after ${time.toFixed(2)} s`;
  }
}

/**
 * @param {Step} step
 * @param {Span | null} span
 */
const isOut = (step, span) => Boolean(span && (step.clock <= span.from || beginOf(step) >= span.to));
