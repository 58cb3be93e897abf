// Where a reader stands in a run: one number, measured seconds, from which every lane shows the steps whose
// clock is not later. Knows lanes and time; no DOM and no clock of its own.

import { mainLane } from "../common/trace.js";

export class Playhead {
  constructor(run) {
    this.run = run;
    this.time = Infinity; // everything that is there: a live run is followed
  }

  // The latest clock of all lanes, prompt included.
  get length() {
    return Math.max(0, ...this.run.lanes.map((lane) => (lane.steps.length ? lane.steps.at(-1).clock : 0)));
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

  // How many steps of a lane are shown.
  shown(lane) {
    return this.isFollowing ? lane.steps.length : numUntil(lane, this.time, true);
  }

  // At the end of what is there the reader follows on, unless told to stay.
  seek(time) {
    this.time = time >= this.length ? Infinity : Math.max(0, time);
  }

  hold() {
    this.time = this.now;
  }

  // Places to stop at: every forward of the main lane, then those of other lanes that went on longer.
  next() {
    const main = mainLane(this.run);
    const after = (lane) => lane.steps[numUntil(lane, this.now, true)];
    const step = after(main) || this.run.lanes.map(after).filter(Boolean).sort((a, b) => a.clock - b.clock)[0];
    this.seek(step ? step.clock : Infinity);
  }

  previous() {
    this.time = this.stop(this.stop(this.now, true), false);
  }

  // The last stop before `limit` (at it, too, where `isIncluded`); 0 before the first.
  stop(limit, isIncluded) {
    const main = mainLane(this.run);
    const over = main.steps.length ? main.steps.at(-1).clock : 0;
    const last = (lane) => lane.steps[numUntil(lane, limit, isIncluded) - 1]?.clock ?? 0;
    const later = this.run.lanes.map(last).filter((clock) => clock > over);
    return later.length ? Math.max(...later) : last(main);
  }
}

// How many steps of a lane have a clock before `time`, or at it where `isIncluded`; clocks never fall.
function numUntil(lane, time, isIncluded) {
  let [low, high] = [0, lane.steps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const { clock } = lane.steps[middle];
    if (clock < time || (isIncluded && clock === time)) low = middle + 1;
    else high = middle;
  }
  return low;
}
