// The player's bar: play and pause, single steps, first and last position, a scrubber (with the skyline if the clock is
// passes), and the speed: passes per second, or a factor of the measured clock. It changes one number (playhead.js). It
// calls `moved` when the reader or a replay changed it, and `landed`, within a frame, when the next position has to be
// drawn.

import { attribute, button, isModified, make, put, shape, targetOf } from "../../core/dom.js";
import { mainLane } from "../../core/folds.js";
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
const SLOWEST = 0.05; // factor of the measured speed: slow enough to see each forward of a small model
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
const CATCH_UP = 2; // passes per second for each waiting pass: a live run is at most half a second behind
const RUSH = 3; // speed-up in passes after the main lane has ended
const HURRY = 20; // passes per second above which single ones cannot be seen
const FRAME = 45; // minimum milliseconds between two drawn passes: the same machine also decodes
const AHEAD = 10; // milliseconds before a pass is due to request its frame
const REST = 0.7; // seconds that a forward is shown when stepping automatically
const LONGEST = 0.25; // maximum seconds that a frame may count, so that a hidden page does not jump
const FREE = "input, textarea, select, button, a, summary, [contenteditable], [role=tab], [role=slider]";

export class Player {
  /** @type {Playhead} */
  playhead; // the bar is shown only while there is one
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
    this.rate = 0; // recent passes per second, 0 when stepping
    this.drawnAt = -1; // the position drawn last
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
    this.tempo = make("div", { class: "pl-speeds", role: "group", "aria-label": "Speed of the replay" });
    this.track = make("div", "pl-track", this.skyline.element, this.marks, this.scrubber);
    element.replaceChildren(
      make("div", "pl-controls", ...this.controls),
      this.track,
      this.position,
      this.live,
      this.tempo,
    );
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
   * Marks a span of time on the scrubber: the zoom, the chosen forward, or where the faster lane ended.
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

  // The speed on the current clock.
  get speed() {
    return this.speeds[this.playhead.clock.name];
  }

  set speed(speed) {
    this.speeds[this.playhead.clock.name] = speed;
  }

  // The end of the scrubber.
  get extent() {
    const { clock, length } = this.playhead;
    return clock.name === "passes" && length ? Math.max(length, this.skyline.columns) : length;
  }

  // Whether the run moves by itself: it is played, or followed while more of it arrives.
  get isMoving() {
    const { isAtEnd, isFollowing, isLive } = this.playhead;
    return this.isPlaying || (isFollowing && (isLive || !isAtEnd));
  }

  // A followed run is shown pass by pass, however many arrived together.
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

  // Whether passes are too fast to be seen one by one.
  get isHurried() {
    return this.rate > HURRY;
  }

  // With the clock passes nothing changes between two passes, so no frame is requested before the next is due.
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
    if (isLanding) this.comeOn(passed);
    else this.playOn(passed);
    const isLast = isLanding ? playhead.drawn === Infinity : !this.isPlaying;
    if (isLast || this.place !== this.drawnAt || playhead.clock.name !== "passes") this.comeTo(isLanding);
    this.nextTick();
  }

  // The current pass, and a half more if all received passes are shown.
  get place() {
    return Math.floor(this.playhead.now) + Number(this.playhead.isAtEnd) / 2;
  }

  // A run that moves by itself does not change what the reader chose.
  /** @param {boolean} isLanding */
  comeTo(isLanding) {
    if (!isLanding) this.moved();
    this.landed();
  }

  /** @param {number} passed seconds */
  playOn(passed) {
    const { playhead } = this;
    this.rested += passed;
    const main = mainLane(playhead.run);
    const isLeft = playhead.clock.name === "passes" && main.end !== null && playhead.shown(main) === main.steps.length;
    const speed = this.stillness.matches ? 0 : this.speed * (isLeft ? RUSH : 1);
    this.rate = speed;
    if (speed) playhead.seek(playhead.time + passed * speed);
    else if (this.rested >= REST) {
      this.rested = 0;
      playhead.next();
    }
    if (playhead.isFollowing) this.isPlaying = false;
  }

  /** @param {number} passed seconds */
  comeOn(passed) {
    const { playhead } = this;
    const waiting = playhead.length - playhead.drawn;
    this.rate = Math.max(this.speeds.passes || 1, CATCH_UP * waiting);
    if (waiting <= 0 && !playhead.isLive) playhead.drawn = Infinity;
    else playhead.drawn += Math.min(waiting, passed * this.rate);
  }

  /**
   * Space plays from anywhere in the view that does not use it; arrow keys, Home and End work while this bar has the
   * focus.
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
    if (isByPass) this.skyline.draw(/** @type {Run} */ (playhead.run));
    const main = mainLane(playhead.run);
    const place = `pass ${playhead.shown(main)} of ${main.steps.length}`;
    put(this.position, isByPass ? `${clock.write(now)} of ${length}` : `${place} · ${clock.write(now)}`);
    scrubber.step = isByPass ? "1" : "any";
    scrubber.max = String(this.extent);
    const value = String(isByPass ? Math.floor(now) : now);
    if (scrubber.value !== value) scrubber.value = value;
    this.describe(isByPass ? `pass ${value} of ${length}` : `${place}, ${now.toFixed(3)} seconds`);
    track.style.setProperty("--pl-share", `${length ? (100 * Number(value)) / this.extent : 0}%`);
    dress(this.play, this.isMoving ? "pause" : "play", this.isMoving ? "Pause" : "Play");
    for (const node of [...this.controls, scrubber]) node.disabled = length === 0;
    this.live.hidden = !playhead.isLive || playhead.isFollowing;
    const isStill = this.stillness.matches;
    const choices = this.choices.filter((each) => each.clock === clock.name);
    if (this.tempo.firstChild !== choices[0].button) this.tempo.replaceChildren(...choices.map((each) => each.button));
    for (const { button: each, speed } of choices) {
      each.hidden = isStill && speed > 0;
      attribute(each, { "aria-pressed": speed === (isStill ? 0 : this.speed) });
    }
  }

  /**
   * While the run moves by itself, screen readers are updated at most once a second.
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
