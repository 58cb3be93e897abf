// The displayed position in a run, counted in forward passes. Every lane shows its passes up to this position. A pass
// can be displayed once every running lane has completed it. No DOM and no timers.

import { folds } from "./folds.js";
import { capital, joined } from "./words.js";

/** @param {Playhead} playhead */
export function positionText({ run: { lanes }, now, isLive }) {
  const pass = Math.floor(now);
  const most = Math.max(...lanes.map(({ steps }) => steps.length));
  const isLooped = (/** @type {Lane} */ lane) => folds.forwards(lane) < lane.steps.length;
  const ended = lanes.filter((lane) => lane.end && lane.steps.length < pass + Number(isLooped(lane)));
  const remarks = ended.map((lane) => {
    const { title, steps, end } = lane;
    const loop = isLooped(lane) ? ` (in a loop from ${folds.forwards(lane) + 1})` : ""; // the headline counts up to it
    return `${title} ${end?.reason === "cancelled" ? "stopped" : "finished"} at ${steps.length}${loop}`;
  });
  return capital(joined(isLive ? `pass ${pass}` : `pass ${pass} of ${most}`, ...remarks));
}

export class Playhead {
  /** @param {{ lanes: Lane[] }} run */
  constructor(run) {
    this.run = run;
    this.time = Infinity; // position in passes; Infinity follows the run and shows everything received
    this.drawn = Infinity; // limit while following, so that passes that arrived together can be shown one by one
  }

  // The number of passes of the longest lane, limited by the slowest running lane.
  get length() {
    /** @type {(lanes: Lane[]) => number[]} */
    const lengths = (lanes) => lanes.map(({ steps }) => steps.length);
    const { lanes } = this.run;
    return Math.min(Math.max(0, ...lengths(lanes)), ...lengths(lanes.filter((lane) => !lane.end)));
  }

  get now() {
    return Math.min(this.time, this.drawn, this.length);
  }

  get isLive() {
    return this.run.lanes.some((lane) => !lane.end);
  }

  get isFollowing() {
    return this.time === Infinity;
  }

  // Whether everything received is displayed.
  get isAtEnd() {
    return this.now >= this.length;
  }

  get isAtStart() {
    return this.time === 0;
  }

  /** Returns the number of displayed passes of a lane. @param {Lane} lane */
  shown(lane) {
    return Math.min(lane.steps.length, Math.floor(this.now));
  }

  /**
   * Moves to a position. At or after the end of the run, new passes are displayed as they arrive.
   * @param {number} time
   */
  seek(time) {
    this.time = time >= this.length ? Infinity : Math.max(0, time);
    this.drawn = Infinity;
  }

  hold() {
    this.time = this.now;
    this.drawn = Infinity;
  }

  next() {
    this.seek(Math.floor(this.now) + 1);
  }

  previous() {
    this.time = Math.max(0, Math.floor(this.now) - 1);
    this.drawn = Infinity;
  }
}

/**
 * Returns how long one pass of every lane takes, from the measured passes of the main lane and of the others; 0 if
 * nothing was measured.
 * @param {Lane[]} lanes
 */
export const secondsPerBeat = (lanes) =>
  lanes.reduce((sum, { seconds, steps }) => sum + (steps.length ? seconds / steps.length : 0), 0);
