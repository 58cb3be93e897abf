// Where a reader stands in a run: one number on the clock that was chosen, from which every lane shows the steps that have
// ended by then. In passes a beat is there once every lane that still runs has made that forward. Knows lanes and time; no
// DOM and no clock of its own.

import { lengthOf, mainLane, numUntil } from "./folds.js";

export class Playhead {
  /**
   * @param {{ lanes: Lane[] }} run
   * @param {Clock} clock
   */
  constructor(run, clock) {
    this.run = run;
    this.clock = clock;
    this.time = Infinity; // everything that is there: a live run is followed
    this.drawn = Infinity; // as far as a run that is followed has been drawn: beats that came together land one by one
  }

  // The latest time of all lanes; in passes no later than the slowest of those that still run.
  get length() {
    const { clock, run } = this;
    /** @type {(lanes: Lane[]) => number[]} */
    const lengths = (lanes) => lanes.map((lane) => lengthOf(lane, clock));
    const running = clock.name === "passes" ? run.lanes.filter((lane) => !lane.end) : [];
    return Math.min(Math.max(0, ...lengths(run.lanes)), ...lengths(running));
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

  // Whether nothing of what is there is still to be shown.
  get isAtEnd() {
    return this.now >= this.length;
  }

  get isAtStart() {
    return this.time === 0;
  }

  /**
   * How many steps of a lane are shown.
   * @param {Lane} lane
   */
  shown(lane) {
    if (this.clock.name === "passes") return Math.min(lane.steps.length, Math.floor(this.now));
    return this.isFollowing ? lane.steps.length : numUntil(lane, this.time, this.clock);
  }

  /**
   * At the end of what is there the reader follows on, unless told to stay.
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

  /**
   * Goes by the other clock from now on, at the same forward of the main lane.
   * @param {Clock} clock
   */
  goBy(clock) {
    const main = mainLane(this.run);
    const step = main.steps[this.shown(main) - 1];
    const isAtEnd = this.isAtEnd;
    this.clock = clock;
    this.seek(isAtEnd ? Infinity : step ? clock.end(step) : 0);
  }

  // Places to stop at are beats, or by measured time the forwards of the main lane, which is what a reader counts; behind
  // its last, the end of all.
  next() {
    const main = mainLane(this.run);
    if (this.clock.name === "passes") this.seek(Math.floor(this.now) + 1);
    else this.seek(main.steps[this.shown(main)]?.clock ?? Infinity);
  }

  previous() {
    const main = mainLane(this.run);
    this.drawn = Infinity;
    if (this.clock.name === "passes") {
      this.time = Math.max(0, Math.floor(this.now) - 1);
      return;
    }
    const now = main.steps[this.shown(main) - 1]?.clock ?? 0;
    this.time = main.steps.findLast((step) => step.clock < now)?.clock ?? 0;
  }
}
