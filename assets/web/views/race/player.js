// The player's bar: play and pause, single steps, start and end, a scrubber, and the speed of a replay (passes per
// second, or a factor of the measured speed). The skyline (skyline.js) is shown on the clock "passes". The player only
// changes the position in the run (playhead.js). It calls `moved` when the visitor or a replay has changed the
// position, and `landed`, within an animation frame, when the new position has to be drawn.

import { attribute, button, isModified, make, put, shape, targetOf } from "../../core/dom.js";
import { mainLane } from "../../core/folds.js";
import { positionText } from "../../core/playhead.js";
import { Skyline } from "./skyline.js";

/** @type {Record<string, string>} */
const ICONS = {
  start: "M3 3h2v10H3z M13 3v10L6 8z",
  back: "M9.5 3v10L3 8z M11 3h2v10h-2z",
  play: "M4 2.5v11L13 8z",
  pause: "M4 3h3v10H4z M9 3h3v10H9z",
  forward: "M6.5 3v10L13 8z M3 3h2v10H3z",
  end: "M11 3h2v10h-2z M3 3v10l7-5z",
};
const SLOWEST = 0.05; // factor of the measured speed at which each pass of a small model can be seen
/** @type {Record<"passes" | "seconds", [name: string, speed: number, title: string][]>} */
const SPEEDS = {
  passes: [
    ["step by step", 0, "one pass every 0.7 s"],
    ["3/s", 3, "three passes per second"],
    ["8/s", 8, "eight passes per second"],
    ["20/s", 20, "twenty passes per second"],
  ],
  seconds: [
    ["step by step", 0, "one pass every 0.7 s"],
    ["1/20×", SLOWEST, "a twentieth of the measured speed"],
    ["½×", 0.5, "half the measured speed"],
    ["1×", 1, "the measured speed"],
    ["2×", 2, "twice the measured speed"],
  ],
};
const CATCH_UP = 2; // passes shown per second for each waiting pass, so that a live run is about half a second behind
const RUSH = 3; // factor of the speed on the clock "passes" after the main lane has ended
const HURRY = 20; // passes per second above which single passes cannot be seen
const FRAME = 45; // minimum milliseconds between two drawn passes, since the same machine may also be decoding
const AHEAD = 10; // how many milliseconds before the next pass its frame is requested
const REST = 0.7; // seconds for which each pass is shown at the speed "step by step"
const LONGEST = 0.25; // maximum seconds that a frame advances the replay, so that it does not jump after a hidden page
// Elements that handle the space bar themselves.
const FREE = "input, textarea, select, button, a, summary, [contenteditable], [role=tab], [role=slider]";

export class Player {
  /** @type {Playhead} */
  playhead; // undefined before the first run; the bar is hidden until then
  /** @type {number} */
  frame;
  /** @type {number} */
  timer;
  /** @type {number} */
  since;
  /** @type {number} */
  rested;
  /**
   * @param {HTMLElement} element
   * @param {() => void} moved
   * @param {() => void} landed
   */
  constructor(element, moved, landed) {
    this.element = element;
    this.moved = moved;
    this.landed = landed;
    this.isPlaying = false;
    this.isShown = false;
    this.rate = 0; // passes per second in the latest frame, 0 when stepping
    this.drawnAt = -1; // the position that was drawn last
    this.speeds = { passes: 8, seconds: 1 };
    this.skyline = new Skyline();
    attribute(element, { role: "group", "aria-label": "Replay" });
    this.play = iconButton("play", "Play", () => this.toggle());
    this.play.classList.add("pl-play");
    this.controls = [
      iconButton("start", "To the start", () => this.seek(0)),
      iconButton("back", "Previous pass", () => this.step(-1)),
      this.play,
      iconButton("forward", "Next pass", () => this.step(1)),
      iconButton("end", "To the end", () => this.seek(Infinity)),
    ];
    this.scrubber = make("input", { class: "pl-scrubber", type: "range", min: 0, "aria-label": "Position in the run" });
    this.scrubber.addEventListener("input", () => {
      this.isPlaying = false;
      this.seek(Number(this.scrubber.value));
    });
    this.position = make("span", "pl-position rv-num");
    this.live = button("pl-live", "Back to live", () => this.seek(Infinity));
    this.marks = make("div", "pl-marks");
    this.choices = Object.entries(SPEEDS).flatMap(([clock, speeds]) =>
      speeds.map(([name, speed, title]) => ({ clock, speed, button: this.speedButton(name, speed, title) })),
    );
    this.tempo = make("div", { class: "pl-speeds", role: "group", "aria-label": "Replay speed" });
    this.track = make("div", "pl-track", this.skyline.element, this.marks, this.scrubber);
    this.bar = make("div", "pl-controls", ...this.controls);
    element.replaceChildren(this.bar, this.track, this.position, this.live, this.tempo);
    this.stillness = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.stillness.addEventListener("change", () => this.draw());
  }

  /**
   * @param {string} name
   * @param {number} speed
   * @param {string} title
   */
  speedButton(name, speed, title) {
    return button({ class: "rv-num", title }, name, () => {
      this.speed = speed;
      this.draw();
    });
  }

  /**
   * Marks a span of time on the scrubber: the zoom, the chosen pass, or where the faster lane ended.
   * @param {string} kind
   * @param {Span | null | undefined} span
   */
  mark(kind, span) {
    const length = this.extent;
    const mark = /** @type {HTMLElement} */ (this.marks.querySelector(`.pl-${kind}`) || make("i", `pl-${kind}`));
    mark.hidden = !span || !length;
    if (span && length) {
      const [from, to] = [span.from, span.to].map((time) => Math.max(0, Math.min(1, time / length)));
      mark.style.left = `${100 * from}%`;
      mark.style.width = `${100 * (to - from)}%`;
    }
    if (!mark.parentNode) this.marks.append(mark);
  }

  /** @param {Playhead | null} playhead */
  show(playhead) {
    if (playhead) this.playhead = playhead;
    this.isShown = Boolean(playhead);
    this.isPlaying = false;
    this.element.hidden = !playhead;
  }

  get speed() {
    return this.speeds[this.playhead.clock.name];
  }

  set speed(speed) {
    this.speeds[this.playhead.clock.name] = speed;
  }

  // The position at the end of the scrubber.
  get extent() {
    const { clock, length } = this.playhead;
    return clock.name === "passes" && length ? Math.max(length, this.skyline.columns) : length;
  }

  // Whether the displayed position advances by itself: in a replay, or in a live run while passes arrive.
  get isMoving() {
    const { isAtEnd, isFollowing, isLive } = this.playhead;
    return this.isPlaying || (isFollowing && (isLive || !isAtEnd));
  }

  // Starts the animation that shows a live run pass by pass, even if several passes arrive together.
  land() {
    if (this.stillness.matches) return;
    this.playhead.drawn = 0;
    this.since = performance.now();
    this.nextTick();
  }

  /** @param {number} time */
  seek(time) {
    this.playhead.seek(time);
    this.moved();
  }

  /** @param {number} direction */
  step(direction) {
    this.isPlaying = false;
    if (direction > 0) this.playhead.next();
    else this.playhead.previous();
    this.moved();
  }

  toggle() {
    const { playhead } = this;
    if (this.isMoving) {
      this.isPlaying = false;
      playhead.hold();
    } else {
      this.isPlaying = true;
      if (playhead.now >= playhead.length) playhead.seek(0);
      this.rested = 0;
      this.since = performance.now();
      this.nextTick();
    }
    this.moved();
  }

  // Whether the passes are shown too fast to be seen one by one.
  get isHurried() {
    return this.rate > HURRY;
  }

  // Requests the next frame. On the clock "passes" nothing changes between two passes, so the frame is requested just
  // before the next pass.
  nextTick() {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    const ask = () => {
      this.frame = requestAnimationFrame((now) => this.tick(now));
    };
    const { clock, now } = this.playhead;
    if (clock.name !== "passes") return ask();
    const left = this.rate ? (1000 * (Math.floor(now) + 1 - now)) / this.rate : 0;
    this.timer = window.setTimeout(ask, Math.min(1000 * LONGEST, Math.max(FRAME, left)) - AHEAD);
    return undefined;
  }

  /** @param {number} now */
  tick(now) {
    const { playhead } = this;
    const isLanding = playhead.isFollowing && playhead.drawn < Infinity;
    if (!(this.isPlaying || isLanding) || !this.element.isConnected) return;
    const passed = Math.min(LONGEST, Math.max(0, now - this.since) / 1000);
    this.since = now;
    if (isLanding) this.advanceFollowed(passed);
    else this.advanceReplay(passed);
    const isLast = isLanding ? playhead.drawn === Infinity : !this.isPlaying;
    if (isLast || this.place !== this.drawnAt || playhead.clock.name !== "passes") this.drawPosition(isLanding);
    this.nextTick();
  }

  // The index of the displayed pass, plus a half if everything received is displayed. The half changes the value when
  // the end is reached, so that the end is drawn.
  get place() {
    return Math.floor(this.playhead.now) + Number(this.playhead.isAtEnd) / 2;
  }

  // Draws the new position. isLanding: whether a live run advanced by itself, in which case the pass that the visitor
  // chose stays chosen.
  /** @param {boolean} isLanding */
  drawPosition(isLanding) {
    if (!isLanding) this.moved();
    this.landed();
  }

  /** @param {number} passed seconds */
  advanceReplay(passed) {
    const { playhead } = this;
    this.rested += passed;
    const main = mainLane(playhead.run);
    const isMainOver =
      playhead.clock.name === "passes" && main.end !== null && playhead.shown(main) === main.steps.length;
    const speed = this.stillness.matches ? 0 : this.speed * (isMainOver ? RUSH : 1);
    this.rate = speed;
    if (speed) playhead.seek(playhead.time + passed * speed);
    else if (this.rested >= REST) {
      this.rested = 0;
      playhead.next();
    }
    if (playhead.isFollowing) this.isPlaying = false;
  }

  /** @param {number} passed seconds */
  advanceFollowed(passed) {
    const { playhead } = this;
    const waiting = playhead.length - playhead.drawn;
    this.rate = Math.max(this.speeds.passes || 1, CATCH_UP * waiting);
    if (waiting <= 0 && !playhead.isLive) playhead.drawn = Infinity;
    else playhead.drawn += Math.min(waiting, passed * this.rate);
  }

  /**
   * Handles keys: Space plays or pauses, from anywhere in the view except elements that use Space themselves. Arrow
   * keys, Home and End move the position while this bar has the focus.
   * @param {KeyboardEvent} event
   */
  key(event) {
    const { key } = event;
    const target = targetOf(event);
    if (!this.isShown || event.defaultPrevented || isModified(event) || event.shiftKey) return;
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      ArrowDown: () => this.step(-1),
      ArrowUp: () => this.step(1),
      Home: () => this.seek(0),
      End: () => this.seek(Infinity),
    };
    const isFree = key === " " && (target === this.scrubber || !target.closest(FREE));
    const act = isFree ? () => this.toggle() : this.element.contains(target) ? keys[key] : undefined;
    if (!act) return;
    event.preventDefault();
    if (key !== " ") this.isPlaying = false;
    act();
  }

  draw() {
    const { playhead, scrubber, track } = this;
    if (!this.isShown) return;
    this.drawnAt = this.place;
    const { clock, length, now } = playhead;
    const isByPass = clock.name === "passes";
    this.element.dataset.clock = clock.name;
    const next = isByPass ? this.bar : this.position; // the skyline is above the buttons
    if (this.track.nextSibling !== next) next.before(this.track);
    if (isByPass) this.skyline.draw(/** @type {Run} */ (playhead.run));
    const position = positionText(playhead);
    put(this.position, position);
    scrubber.step = isByPass ? "1" : "any";
    scrubber.max = String(this.extent);
    const value = String(isByPass ? Math.floor(now) : now);
    if (scrubber.value !== value) scrubber.value = value;
    this.describe(position);
    track.style.setProperty("--pl-share", `${length ? (100 * Number(value)) / this.extent : 0}%`);
    dress(this.play, this.isMoving ? "pause" : "play", this.isMoving ? "Pause" : "Play");
    for (const node of [...this.controls, scrubber]) node.disabled = length === 0;
    this.live.hidden = !playhead.isLive || playhead.isFollowing;
    const isStill = this.stillness.matches;
    const choices = this.choices.filter((choice) => choice.clock === clock.name);
    const nodes = choices.map((choice) => choice.button);
    if (this.tempo.firstChild !== nodes[0]) this.tempo.replaceChildren(...nodes);
    for (const { button: node, speed } of choices) {
      node.hidden = isStill && speed > 0;
      attribute(node, { "aria-pressed": speed === (isStill ? 0 : this.speed) });
    }
  }

  /**
   * Updates the position for screen readers, at most once a second while the position advances by itself.
   * @param {string} text
   */
  describe(text) {
    const now = performance.now();
    if (this.isMoving && now - (this.describedAt || 0) < 1000) return;
    this.describedAt = now;
    this.scrubber.setAttribute("aria-valuetext", text);
  }
}

/**
 * @param {string} name
 * @param {string} label
 * @param {() => void} act
 */
function iconButton(name, label, act) {
  const icon = shape("svg", { viewBox: "0 0 16 16", "aria-hidden": true }, shape("path"));
  const node = button("", [icon], act);
  dress(node, name, label);
  return node;
}

/**
 * @param {HTMLElement} node
 * @param {string} icon
 * @param {string} label
 */
function dress(node, icon, label) {
  if (node.dataset.act === icon) return;
  attribute(node, { "data-act": icon, title: label, "aria-label": label });
  node.querySelector("path")?.setAttribute("d", ICONS[icon]);
}
