// Pure: what charts draw in data coordinates, as shapes of plotly.

import { beginOf } from "./span.js";

/**
 * What is drawn in data coordinates is a shape with a path of its own: Plotly would make an element of every bar, and
 * calculate every corner of a trace for longer than a frame. Shapes stay in its uppermost layer, the default: those
 * between the grid and the traces survive react when their number falls (plotly.js 4.1).
 * @param {string} path
 * @param {Json} more
 * @returns {Json[]}
 */
const shapeOf = (path, more) =>
  path ? [{ type: "path", xref: "x", yref: "y", path, line: { width: 0 }, fillrule: "nonzero", ...more }] : [];

/**
 * What could not be seen if it were finer: seconds, and what a height is rounded to; 0 where all can be seen.
 * @typedef {{ time: number, height: number }} Finest
 */

const JOINED = 0.02; // of a forward's time: a gap that no clock made

// Marks at heights, as wide as their forwards took. Of what repeats without a gap one mark is made: a path costs by its
// numbers, and a run of thousands of forwards would halt the page when it ends.
class Marks {
  /** @param {number} gap seconds that could not be seen */
  constructor(gap) {
    this.gap = gap;
    /** @type {{ left: number, right: number, low: number, high: number }[]} */
    this.marks = [];
    /** @type {Map<string, { left: number, right: number }>} */
    this.latest = new Map();
  }

  /**
   * share: of its time that a mark leaves free at either side.
   * @param {Step} step
   * @param {number} share
   * @param {number} low
   * @param {number} high
   */
  add(step, share, low, high) {
    const room = step.seconds * share;
    const mark = { left: beginOf(step) + room, right: step.clock - room, low: round(low), high: round(high) };
    const key = `${mark.low} ${mark.high}`;
    const before = this.latest.get(key);
    if (before && mark.left - before.right < Math.max(this.gap, step.seconds * JOINED)) before.right = mark.right;
    else {
      this.marks.push(mark);
      this.latest.set(key, mark);
    }
  }
}

// Rectangles of one colour.
export class Boxes extends Marks {
  /**
   * @param {string} color
   * @param {Finest} finest
   */
  constructor(color, finest) {
    super(finest.time);
    this.color = color;
  }

  get shapes() {
    const path = this.marks.map(
      ({ left, right, low, high }) => `M${round(left)},${low}H${round(right)}V${high}H${round(left)}Z`,
    );
    return shapeOf(path.join(""), { fillcolor: this.color });
  }
}

// Lines at a height.
export class Dashes extends Marks {
  /**
   * @param {Json} line
   * @param {Finest} finest
   */
  constructor(line, finest) {
    super(finest.time);
    this.line = line;
    this.finest = finest.height;
  }

  /**
   * @param {Step} step
   * @param {number} height
   * @param {number} [share]
   */
  hold(step, height, share = 0) {
    const seen = this.finest ? Math.round(height / this.finest) * this.finest : height;
    this.add(step, share, seen, seen);
  }

  get shapes() {
    const path = this.marks.map(({ left, right, low }) => `M${round(left)},${low}H${round(right)}`);
    return shapeOf(path.join(""), { line: this.line });
  }
}

/** @param {number} value */
const round = (value) => Math.round(value * 1e5) / 1e5;
