// The position in a run: one number on the chosen clock. Every lane shows the steps that have ended by then. With the
// clock passes, a pass is available once every running lane has made that forward. No DOM and no time of its own.

import { lengthOf, mainLane, numUntil } from "./folds.js";

export class Playhead {
  /**
   * @param {{ lanes: Lane[] }} run
   * @param {Clock} clock
   */
  constructor(run, clock) {
    this.run = run;
    this.clock = clock;
    this.time = Infinity; // everything received: a live run is followed
    this.drawn = Infinity; // how far a followed run has been drawn: passes that arrived together are shown one by one
  }

  // The latest time of all lanes; in passes, limited by the slowest running lane.
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

  // Whether everything received is displayed.
  get isAtEnd() {
    return this.now >= this.length;
  }

  get isAtStart() {
    return this.time === 0;
  }

  /**
   * Returns the position on a clock: on another than the chosen one, the latest end of a displayed step.
   * @param {Clock} clock
   */
  timeOn(clock) {
    if (clock === this.clock) return this.now;
    const last = this.run.lanes.map((lane) => lane.steps[this.shown(lane) - 1]);
    return Math.max(0, ...last.filter(Boolean).map((step) => clock.end(step)));
  }

  /**
   * Returns the number of displayed steps of a lane.
   * @param {Lane} lane
   */
  shown(lane) {
    if (this.clock.name === "passes") return Math.min(lane.steps.length, Math.floor(this.now));
    return this.isFollowing ? lane.steps.length : numUntil(lane, this.time, this.clock);
  }

  /**
   * Moves to a time. At the end the run is followed again, unless this is disabled.
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
   * Switches to the other clock, at the same forward of the main lane.
   * @param {Clock} clock
   */
  goBy(clock) {
    const main = mainLane(this.run);
    const step = main.steps[this.shown(main) - 1];
    const isAtEnd = this.isAtEnd;
    this.clock = clock;
    this.seek(isAtEnd ? Infinity : step ? clock.end(step) : 0);
  }

  // Positions to stop at are passes or, on the measured clock, the forwards of the main lane; after its last one, the
  // end of all lanes.
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
