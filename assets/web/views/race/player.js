// The tape of a run with its controls: play and pause, single passes, and one speed, which also slows a live run down.
// The keys Home and End go to the start and the end. The player only changes the position in the run (playhead.js) and reports it.

import { attribute, button, isModified, make, put, shape, targetOf } from "../../core/dom.js";
import { mainLane } from "../../core/folds.js";
import { positionText } from "../../core/playhead.js";
import { Tape } from "./tape.js";

/** @type {Record<string, string>} */
const ICONS = {
  back: "M9.5 3v10L3 8z M11 3h2v10h-2z",
  play: "M4 2.5v11L13 8z",
  pause: "M4 3h3v10H4z M9 3h3v10H9z",
  forward: "M6.5 3v10L13 8z M3 3h2v10H3z",
};
const FASTEST = 20; // passes per second of a replay at full speed
/** @type {[name: string, speed: number][]} */
const SPEEDS = [
  ["one pass at a time", 1.4],
  ["3 passes/s", 3],
  ["8 passes/s", 8],
  ["full speed", Infinity],
];
const OPENING = 8; // passes per second of the recording with which the page opens
const CATCH_UP = 2; // passes shown per second for each waiting pass, so that a live run is about half a second behind
const RUSH = 3; // factor of the replay's speed after the main lane has ended
const FRAME = 45; // minimum milliseconds between two drawn passes, since the same machine may also be decoding
const AHEAD = 10; // how many milliseconds before the next pass its frame is requested
const LONGEST = 0.25; // maximum seconds that a frame advances the replay, so that it does not jump after a hidden page
// Elements that handle the player's keys themselves.
const TYPING =
  "input, textarea, select, [contenteditable], [role=tab], [role=slider], [role=listbox], [role=menu], dialog";
const PRESSED = "button, a, summary";

export class Player {
  /** @type {Playhead} */
  playhead; // undefined before the first run; the player is hidden until then
  /** @type {number} */
  frame;
  /** @type {number} */
  timer;
  /** @type {number} */
  since;

  /**
   * moved: the visitor or a replay changed the position. landed: the new position has to be drawn in this frame. paced:
   * the visitor chose another speed. picked: the visitor clicked a pass (from 0) of a lane, or a place where it has none: null.
   * @param {HTMLElement} element
   * @param {{ moved(): void, landed(): void, paced(): void, picked(lane: Lane | null, pass: number): void }} report
   */
  constructor(element, report) {
    this.element = element;
    this.report = report;
    this.isPlaying = false;
    this.isShown = false;
    this.rate = 0; // passes per second in the latest frame
    this.drawnAt = -1; // the position that was drawn last
    this.tape = new Tape();
    attribute(element, { role: "group", "aria-label": "Replay" });
    this.play = iconButton("play", "Play (space)", () => this.toggle());
    this.play.classList.add("pl-play");
    this.controls = [
      iconButton("back", "Previous pass (left arrow)", () => this.step(-1)),
      this.play,
      iconButton("forward", "Next pass (right arrow)", () => this.step(1)),
    ];
    this.scrubber = make("input", { class: "pl-scrubber", type: "range", min: 0, step: 1 });
    attribute(this.scrubber, { "aria-label": "Position in the run (Home: start, End: end)" });
    this.scrubber.addEventListener("input", () => {
      this.isPlaying = false;
      this.seek(Number(this.scrubber.value));
    });
    this.scrubber.addEventListener("pointerdown", (press) => this.pressed(press));
    this.position = make("span", "pl-position rv-num");
    this.live = button("pl-live", "Back to live", () => this.seek(Infinity));
    this.chosen = make("i", { class: "pl-chosen", hidden: "" });
    this.choice = make("select", {
      class: "pl-speed",
      "aria-label": "Speed",
      title: "Speed of replays and of live runs",
    });
    this.choice.append(...SPEEDS.map(([name, speed]) => new Option(name, String(speed), false, speed === Infinity)));
    this.choice.addEventListener("change", () => {
      this.isOpening = false;
      this.report.paced();
    });
    this.isOpening = false; // whether the recording of the opening page plays, at its own speed
    this.track = make("div", "pl-track", this.tape.element, make("div", "pl-marks", this.chosen), this.scrubber);
    this.bar = make(
      "div",
      "pl-bar",
      make("div", "pl-controls", ...this.controls),
      this.choice,
      this.position,
      this.live,
      make("span", "pl-hint", "space plays, ← and → step; click a pass or a token to see why"),
    );
    element.replaceChildren(this.track, this.bar);
    this.stillness = window.matchMedia("(prefers-reduced-motion: reduce)");
  }

  /**
   * Reports the pass on which the visitor clicked; a drag only moves the position.
   * @param {PointerEvent} press
   */
  pressed(press) {
    const rows = [...this.tape.element.querySelectorAll(".pl-row")];
    const row = rows.find((node) => press.clientY <= node.getBoundingClientRect().bottom);
    const { left, width } = this.scrubber.getBoundingClientRect();
    const pass = Math.floor(((press.clientX - left) / width) * this.extent);
    const lane = this.playhead.run.lanes.find(({ name }) => name === row?.getAttribute("data-lane"));
    /** @param {PointerEvent} event */
    const released = ({ clientX }) => {
      if (Math.abs(clientX - press.clientX) < 4) this.report.picked(lane?.steps[pass] ? lane : null, pass);
    };
    window.addEventListener("pointerup", released, { once: true });
  }

  /**
   * Marks the chosen pass on the tape; null removes the mark.
   * @param {Focus | null} chosen
   */
  mark(chosen) {
    this.chosen.hidden = !chosen;
    if (!chosen) return;
    this.chosen.style.left = `${(100 * chosen.step) / this.extent}%`;
    this.chosen.style.width = `${100 / this.extent}%`;
  }

  /** @param {Playhead | null} playhead */
  show(playhead) {
    if (playhead) this.playhead = playhead;
    this.isShown = Boolean(playhead);
    this.isPlaying = false;
    this.isOpening = false;
    this.element.hidden = !playhead;
  }

  // The chosen speed in passes per second; Infinity is full speed.
  get speed() {
    return Number(this.choice.value);
  }

  // The position at the end of the scrubber.
  get extent() {
    return Math.max(this.playhead.length, this.tape.columns);
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
    this.report.moved();
  }

  /** @param {number} direction */
  step(direction) {
    this.isPlaying = false;
    if (direction > 0) this.playhead.next();
    else this.playhead.previous();
    this.report.moved();
  }

  toggle() {
    const { playhead } = this;
    if (this.isMoving) {
      this.isPlaying = false;
      playhead.hold();
    } else {
      this.isPlaying = true;
      if (playhead.now >= playhead.length) playhead.seek(0);
      this.since = performance.now();
      this.nextTick();
    }
    this.report.moved();
  }

  // Plays the recording with which the page opens.
  open() {
    this.isOpening = true;
    this.toggle();
  }

  // Whether the passes are shown too fast to be seen one by one.
  get isHurried() {
    return this.rate > FASTEST;
  }

  // Requests the next frame just before the next pass, since nothing changes between two passes.
  nextTick() {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    const { now } = this.playhead;
    const left = this.rate ? (1000 * (Math.floor(now) + 1 - now)) / this.rate : 0;
    this.timer = window.setTimeout(
      () => {
        this.frame = requestAnimationFrame((time) => this.tick(time));
      },
      Math.min(1000 * LONGEST, Math.max(FRAME, left)) - AHEAD,
    );
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
    if (isLast || this.drawnPosition !== this.drawnAt) {
      if (!isLanding) this.report.moved(); // a live run that advances keeps the pass that the visitor chose
      this.report.landed();
    }
    this.nextTick();
  }

  // The index of the displayed pass, plus a half if everything received is displayed. The half changes the value when
  // the end is reached, so that the end is drawn.
  get drawnPosition() {
    return Math.floor(this.playhead.now) + Number(this.playhead.isAtEnd) / 2;
  }

  /** @param {number} passed seconds */
  advanceReplay(passed) {
    const { playhead } = this;
    const main = mainLane(playhead.run);
    const isMainOver = main.end !== null && playhead.shown(main) === main.steps.length;
    const speed = this.stillness.matches ? SPEEDS[0][1] : this.isOpening ? OPENING : Math.min(this.speed, FASTEST);
    this.rate = speed * (isMainOver ? RUSH : 1);
    playhead.seek(playhead.time + passed * this.rate);
    if (playhead.isFollowing) this.isPlaying = false;
  }

  /** @param {number} passed seconds */
  advanceFollowed(passed) {
    const { playhead } = this;
    const waiting = playhead.length - playhead.drawn;
    this.rate = Math.max(OPENING, CATCH_UP * waiting);
    if (waiting <= 0 && !playhead.isLive) playhead.drawn = Infinity;
    else playhead.drawn += Math.min(waiting, passed * this.rate);
  }

  /**
   * Handles the player's keys, except in elements that use them themselves.
   * @param {KeyboardEvent} event
   */
  key(event) {
    const { key } = event;
    const target = targetOf(event);
    if (!this.isShown || event.defaultPrevented || isModified(event) || event.shiftKey) return;
    if (target !== this.scrubber && target.closest?.(key === " " ? `${TYPING}, ${PRESSED}` : TYPING)) return;
    /** @type {Record<string, () => void>} */
    const keys = {
      " ": () => this.toggle(),
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      Home: () => this.seek(0),
      End: () => this.seek(Infinity),
    };
    if (!(key in keys)) return;
    event.preventDefault();
    if (key !== " ") this.isPlaying = false;
    keys[key]();
  }

  draw() {
    const { playhead, scrubber } = this;
    if (!this.isShown) return;
    this.drawnAt = this.drawnPosition;
    this.tape.draw(/** @type {Run} */ (playhead.run));
    const text = positionText(playhead);
    put(this.position, text);
    scrubber.max = String(this.extent);
    const value = String(Math.floor(playhead.now));
    if (scrubber.value !== value) scrubber.value = value;
    this.describe(text);
    this.track.style.setProperty("--pl-share", `${(100 * Number(value)) / this.extent}%`);
    dress(this.play, this.isMoving ? "pause" : "play", this.isMoving ? "Pause (space)" : "Play (space)");
    for (const node of [...this.controls, scrubber]) node.disabled = playhead.length === 0;
    this.live.hidden = !playhead.isLive || playhead.isFollowing;
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
