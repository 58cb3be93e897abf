// The time axis that the charts of a run share (passes, or measured seconds of decoding of each lane), and marks on
// this axis as Plotly shapes in data coordinates. Pure; no DOM.

import { lengthOf, mainLane } from "../core/folds.js";

const JOINED = 0.02; // share of a pass's time; a smaller gap between marks results only from rounding

// Collects the marks of a chart, one or more for each pass, and draws them as filled rectangles in one colour: a mark is
// as wide as the pass is long. Marks at the same height without a visible gap between them are merged: a path with
// thousands of marks would take so long to draw that it blocks the page.
export class Boxes {
  /**
   * @param {string} color
   * @param {number} gap smallest visible gap on the time axis, 0 if there is no limit
   * @param {Clock} clock
   */
  constructor(color, gap, clock) {
    this.color = color;
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

  /**
   * Returns a single Plotly shape that draws all marks as one path, [] without marks. Plotly's bars or traces would take
   * longer than a frame: Plotly creates an element for each bar and computes every corner of a trace. The shape is in
   * Plotly's top layer (the default), because shapes in the layer below the traces stay visible if react is called with
   * fewer shapes (plotly.js 4.1).
   * @returns {Json[]}
   */
  get shapes() {
    if (!this.marks.length) return [];
    const path = this.marks
      .map(({ left, right, low, high }) => `M${round(left)},${low}H${round(right)}V${high}H${round(left)}Z`)
      .join("");
    const style = { fillcolor: this.color, line: { width: 0 }, fillrule: "nonzero" };
    return [{ type: "path", xref: "x", yref: "y", path, ...style }];
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

const WIDE = 900; // approximate width of a chart in pixels

/**
 * Returns the smallest gap on the time axis that is visible in a chart; smaller gaps are closed. If there are few steps,
 * there is no limit (0).
 * @param {Step[]} steps
 * @param {Span} span
 */
export const finestOf = (steps, { from, to }) => (steps.length > WINDOW ? (to - from) / WIDE : 0);
