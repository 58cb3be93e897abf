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
export const shapeOf = (path, more) =>
  path ? [{ type: "path", xref: "x", yref: "y", path, line: { width: 0 }, fillrule: "nonzero", ...more }] : [];

// Rectangles of one colour, as wide as their forwards took.
export class Boxes {
  /** @type {string[]} */
  path;

  /** @param {string} color */
  constructor(color) {
    this.color = color;
    this.path = [];
  }

  /**
   * share: of its time that a box leaves free at either side.
   * @param {Step} step
   * @param {number} share
   * @param {number} low
   * @param {number} high
   */
  add(step, share, low, high) {
    const room = step.seconds * share;
    const [left, right] = [round(beginOf(step) + room), round(step.clock - room)];
    this.path.push(`M${left},${round(low)}H${right}V${round(high)}H${left}Z`);
  }

  get shapes() {
    return shapeOf(this.path.join(""), { fillcolor: this.color });
  }
}

/** @param {number} value */
const round = (value) => Math.round(value * 1e5) / 1e5;

// A level that holds from forward to forward, with a gap where it jumps.
export class Level {
  /** @type {number | null} */
  now;

  constructor() {
    this.path = "";
    this.now = null;
  }

  /**
   * @param {Step} step
   * @param {number} level
   */
  hold(step, level) {
    if (level !== this.now) this.path += `M${round(beginOf(step))},${round(level)}`;
    this.path += `H${round(step.clock)}`;
    this.now = level;
  }
}
