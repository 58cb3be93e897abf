// Pure: what charts draw in data coordinates, as shapes of plotly.

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

// Rectangles of one colour.
export class Boxes {
  /** @type {string[]} */
  path;

  /** @param {string} color */
  constructor(color) {
    this.color = color;
    this.path = [];
  }

  /**
   * @param {Step} step
   * @param {number} half
   * @param {number} low
   * @param {number} high
   */
  add(step, half, low, high) {
    const x = step.index + 1;
    this.path.push(`M${x - half},${round(low)}H${x + half}V${round(high)}H${x - half}Z`);
  }

  get shapes() {
    return shapeOf(this.path.join(""), { fillcolor: this.color });
  }
}

/** @param {number} value */
const round = (value) => Math.round(value * 1000) / 1000;
// A level that holds from forward to forward, with a gap where it jumps.
export class Level {
  /** @type {number | null} */
  now;

  constructor() {
    this.path = "";
    this.now = null;
  }

  /**
   * @param {number} index
   * @param {number} level
   */
  hold(index, level) {
    if (level !== this.now) this.path += `M${index + 0.5},${round(level)}`;
    this.path += `H${index + 1.5}`;
    this.now = level;
  }
}
