// Pure: the time axis that all charts of a run share (passes, or measured seconds of decoding with each lane on its own
// clock), and marks on it in data coordinates, as Plotly shapes.

import { lengthOf, mainLane } from "../core/folds.js";

/**
 * Returns a shape with a path. For bars Plotly would create an element each, and for a trace compute every corner,
 * longer than a frame. Shapes are in the uppermost layer, the default: those between the grid and the traces survive
 * react when their number falls (plotly.js 4.1).
 * @param {string} path
 * @param {Json} more
 * @returns {Json[]}
 */
const shapeOf = (path, more) =>
  path ? [{ type: "path", xref: "x", yref: "y", path, line: { width: 0 }, fillrule: "nonzero", ...more }] : [];

/**
 * Smallest visible differences: of time on the axis, and the unit of rounding for heights; 0 for no limit.
 * @typedef {{ time: number, height: number }} Finest
 */

const JOINED = 0.02; // of a forward's time: a gap due to rounding only

// Marks at heights, as wide as their forwards' times. Equal marks without a visible gap are merged: the cost of a path
// depends on its length, and a run of thousands of forwards would block the page when it ends.
class Marks {
  /**
   * @param {number} gap smallest visible gap on the axis
   * @param {Clock} clock
   */
  constructor(gap, clock) {
    this.gap = gap;
    this.clock = clock;
    /** @type {{ left: number, right: number, low: number, high: number }[]} */
    this.marks = [];
    /** @type {Map<string, { left: number, right: number }>} */
    this.latest = new Map();
  }

  /**
   * share: of its time that a mark leaves empty on each side.
   * @param {Step} step
   * @param {number} share
   * @param {number} low
   * @param {number} high
   */
  add(step, share, low, high) {
    const [begin, end] = [this.clock.begin(step), this.clock.end(step)];
    const room = (end - begin) * share;
    const mark = { left: begin + room, right: end - room, low: round(low), high: round(high) };
    const key = `${mark.low} ${mark.high}`;
    const before = this.latest.get(key);
    if (before && mark.left - before.right < Math.max(this.gap, (end - begin) * JOINED)) before.right = mark.right;
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
   * @param {Clock} clock
   */
  constructor(color, finest, clock) {
    super(finest.time, clock);
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
   * @param {Clock} clock
   */
  constructor(line, finest, clock) {
    super(finest.time, clock);
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

const WINDOW = 240; // forwards shown during a run; at its end the whole run is shown
const LEAST = 24; // minimum forwards of an axis during a run, so that the first bars are not too wide

/**
 * Returns the range of the axis: all of a finished run; of a live one the latest forwards.
 * @param {Lane[]} lanes
 * @param {boolean} isLive
 * @param {Clock} clock
 * @returns {Span}
 */
export function timeSpan(lanes, isLive, clock) {
  const length = Math.max(...lanes.map((lane) => lengthOf(lane, clock)));
  if (!isLive) return { from: 0, to: length || 0.01 };
  const { steps } = mainLane({ lanes });
  const from = steps.length > WINDOW ? clock.begin(steps[steps.length - WINDOW]) : 0;
  const each = length / Math.max(1, ...lanes.map((lane) => lane.steps.length));
  return { from, to: Math.max(length, from + LEAST * each) || 0.01 };
}

/**
 * Returns the forwards of a lane on such an axis.
 * @param {Lane} lane
 * @param {Span} span
 * @param {Clock} clock
 */
export const stepsIn = (lane, { from, to }, clock) =>
  lane.steps.filter((step) => clock.end(step) > from && clock.begin(step) < to);

const [WIDE, HIGH] = [900, 150]; // approximate pixels of a chart

/**
 * Returns the smallest visible differences in a chart; no limit for few forwards.
 * @param {Step[]} steps
 * @param {Span} span
 * @param {number} height
 */
export const finestOf = (steps, { from, to }, height) =>
  steps.length > WINDOW ? { time: (to - from) / WIDE, height: height / HIGH } : { time: 0, height: 0 };

// Confidence as a number of nines: 0.9 and 0.99 are as far apart as 0.99 and 0.999.
export const TICKS = [0, 0.5, 0.9, 0.99, 0.999, 0.9999];
const MOST = 4; // nines; higher confidence is drawn here

/** @param {number} p */
export const nines = (p) => Math.min(MOST, -Math.log10(Math.max(1 - p, 10 ** -MOST)));
