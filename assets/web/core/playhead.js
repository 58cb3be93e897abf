// Where a reader stands in a run: one number, measured seconds, from which every lane shows the steps whose
// clock is not later. Knows lanes and time; no DOM and no clock of its own.

import { lastOf, mainLane, numUntil } from "./folds.js";

export class Playhead {
  /** @param {{ lanes: Lane[] }} run */
  constructor(run) {
    this.run = run;
    this.time = Infinity; // everything that is there: a live run is followed
  }

  // The latest clock of all lanes.
  get length() {
    return Math.max(0, ...this.run.lanes.map((lane) => (lane.steps.length ? lastOf(lane.steps).clock : 0)));
  }

  get now() {
    return Math.min(this.time, this.length);
  }

  get isLive() {
    return this.run.lanes.some((lane) => !lane.end);
  }

  get isFollowing() {
    return this.time === Infinity;
  }

  get isAtStart() {
    return this.time === 0;
  }

  /**
   * How many steps of a lane are shown.
   * @param {Lane} lane
   */
  shown(lane) {
    return this.isFollowing ? lane.steps.length : numUntil(lane, this.time);
  }

  /**
   * At the end of what is there the reader follows on, unless told to stay.
   * @param {number} time
   */
  seek(time) {
    this.time = time >= this.length ? Infinity : Math.max(0, time);
  }

  hold() {
    this.time = this.now;
  }

  // Places to stop at are the forwards of the main lane, which is what a reader counts; behind its last, the end of all.
  next() {
    const main = mainLane(this.run);
    this.seek(main.steps[this.shown(main)]?.clock ?? Infinity);
  }

  previous() {
    const main = mainLane(this.run);
    const now = main.steps[this.shown(main) - 1]?.clock ?? 0;
    this.time = main.steps.findLast((step) => step.clock < now)?.clock ?? 0;
  }
}
