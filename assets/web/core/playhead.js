// The displayed position in a run: one number on the chosen clock. Every lane shows the steps that end at or before
// this position. On the clock "passes", a pass can be displayed once every running lane has completed it. No DOM and no
// timers.

import { lengthOf, mainLane, numUntil } from "./folds.js";
import { capital, joined } from "./words.js";

/**
 * Describes the displayed position in passes. Once a lane has finished, counts the passes of the lanes that continue.
 * @param {Playhead} playhead
 * @returns {[pass: string, remark: string]}
 */
export function passText({ run: { lanes }, now }) {
  const pass = Math.floor(now);
  const finished = lanes.filter(({ end, steps }) => end && steps.length < pass);
  const others = lanes.filter((lane) => !finished.includes(lane));
  if (finished.length)
    return [
      `${capital(others.map(({ title }) => title).join(", "))} pass ${pass}`,
      joined(...finished.map(({ title, steps }) => `${title} finished at pass ${steps.length}`)),
    ];
  const all = lanes.length > 2 ? "all" : "both";
  return [`Pass ${pass}`, lanes.length > 1 ? `each tick is one pass in ${all} lanes` : ""];
}

/**
 * Describes the position in a run: as a pass of the longest lane or, on the clock "seconds", as a time with the main
 * lane's pass.
 * @param {Playhead} playhead
 */
export function positionText(playhead) {
  const { clock, run, now, length, isLive } = playhead;
  const main = mainLane(run);
  /** @type {(lane: Lane, at: number) => string} */
  const passOf = (lane, at) => `${run.lanes.length > 1 ? `${lane.title} ` : ""}pass ${at} of ${lane.steps.length}`;
  if (clock.name === "seconds") return `${passOf(main, playhead.shown(main))} · ${clock.write(now)}`;
  const longest = run.lanes.find(({ steps }) => steps.length === length);
  return isLive || !longest ? clock.write(now) : passOf(longest, Math.floor(now));
}

export class Playhead {
  /**
   * @param {{ lanes: Lane[] }} run
   * @param {Clock} clock
   */
  constructor(run, clock) {
    this.run = run;
    this.clock = clock;
    this.time = Infinity; // position on the clock; Infinity follows the run and shows everything received
    this.drawn = Infinity; // limit while following, so that passes that arrived together can be shown one by one
  }

  // The end of the longest lane on the clock. On the clock "passes" it is limited by the slowest running lane.
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
   * Returns the displayed position on a clock. On the clock that is not chosen, this is the latest end of a displayed
   * step.
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
   * Moves to a time. If the time is at or after the end of the run, new passes are displayed as they arrive.
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
   * Switches to another clock and stays at the same step of the main lane.
   * @param {Clock} clock
   */
  goBy(clock) {
    const main = mainLane(this.run);
    const step = main.steps[this.shown(main) - 1];
    const isAtEnd = this.isAtEnd;
    this.clock = clock;
    this.seek(isAtEnd ? Infinity : step ? clock.end(step) : 0);
  }

  // Moves to the next pass. On the clock "seconds", moves to the end of the main lane's next step or, after its last
  // step, to the end of all lanes.
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
    const current = main.steps[this.shown(main) - 1]?.clock ?? 0;
    this.time = main.steps.findLast((step) => step.clock < current)?.clock ?? 0;
  }
}
