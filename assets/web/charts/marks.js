// The time axis that the charts of a run share (passes, or measured seconds of decoding of each lane), and marks on
// this axis as Plotly shapes in data coordinates. Pure; no DOM.

import { lengthOf, mainLane } from "../core/folds.js";

/**
 * Returns a single Plotly shape that draws all marks as one path, [] for an empty path. Plotly's bars or traces would
 * take longer than a frame: Plotly creates an element for each bar and computes every corner of a trace. The shape is
 * in Plotly's top layer (the default), because shapes in the layer below the traces stay visible if react is called
 * with fewer shapes (plotly.js 4.1).
 * @param {string} path
 * @param {Json} more
 * @returns {Json[]}
 */
const shapeOf = (path, more) =>
  path ? [{ type: "path", xref: "x", yref: "y", path, line: { width: 0 }, fillrule: "nonzero", ...more }] : [];

/**
 * The smallest differences that are visible in a chart. time: smallest visible gap on the time axis. height: unit to
 * which heights are rounded. A value of 0 means that there is no limit.
 * @typedef {{ time: number, height: number }} Finest
 */

const JOINED = 0.02; // share of a pass's time; a smaller gap between marks results only from rounding

// Collects the marks of a chart, one or more for each pass: a mark is as wide as the pass is long. Marks at the same
// height without a visible gap between them are merged: a path with thousands of marks would take so long to draw that
// it blocks the page.
class Marks {
  /**
   * @param {number} gap smallest visible gap on the time axis
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
   * Adds a mark for a step. share: the part of the step's time that stays empty on each side of the mark.
   * @param {Step} step
   * @param {number} share
   * @param {number} low
   * @param {number} high
   */
  add(step, share, low, high) {
    const [begin, end] = [this.clock.begin(step), this.clock.end(step)];
    const margin = (end - begin) * share;
    const mark = { left: begin + margin, right: end - margin, low: round(low), high: round(high) };
    const key = `${mark.low} ${mark.high}`;
    const before = this.latest.get(key);
    if (before && mark.left - before.right < Math.max(this.gap, (end - begin) * JOINED)) before.right = mark.right;
    else {
      this.marks.push(mark);
      this.latest.set(key, mark);
    }
  }
}

// Marks that are drawn as filled rectangles in one colour.
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

// Marks that are drawn as horizontal lines in one style.
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
    const rounded = this.finest ? Math.round(height / this.finest) * this.finest : height;
    this.add(step, share, rounded, rounded);
  }

  get shapes() {
    const path = this.marks.map(({ left, right, low }) => `M${round(left)},${low}H${round(right)}`);
    return shapeOf(path.join(""), { line: this.line });
  }
}

/** @param {number} value */
const round = (value) => Math.round(value * 1e5) / 1e5;

const WINDOW = 240; // maximum number of passes that are shown during a run; at its end the whole run is shown
const LEAST = 24; // minimum number of passes that the axis has space for, so that the first bars are not too wide

/**
 * Returns the range of the time axis: all of a finished run, or the latest passes of a live one.
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
  const perStep = length / Math.max(1, ...lanes.map((lane) => lane.steps.length));
  return { from, to: Math.max(length, from + LEAST * perStep) || 0.01 };
}

/**
 * Returns the steps of a lane that are at least partly within a span of the time axis.
 * @param {Lane} lane
 * @param {Span} span
 * @param {Clock} clock
 */
export const stepsIn = (lane, { from, to }, clock) =>
  lane.steps.filter((step) => clock.end(step) > from && clock.begin(step) < to);

const [WIDE, HIGH] = [900, 150]; // approximate size of a chart in pixels

/**
 * Returns the smallest differences that are visible in a chart, below which marks are merged and heights rounded. If
 * there are few steps, there is no limit (0).
 * @param {Step[]} steps
 * @param {Span} span
 * @param {number} height
 */
export const finestOf = (steps, { from, to }, height) =>
  steps.length > WINDOW ? { time: (to - from) / WIDE, height: height / HIGH } : { time: 0, height: 0 };

// Ticks of the confidence axis, which shows confidence as a number of nines: the distance from 0.9 to 0.99 is the same
// as from 0.99 to 0.999.
export const TICKS = [0, 0.5, 0.9, 0.99, 0.999, 0.9999];
const MOST = 4; // maximum number of nines; higher confidence is drawn at this height

/** @param {number} p */
export const nines = (p) => Math.min(MOST, -Math.log10(Math.max(1 - p, 10 ** -MOST)));
