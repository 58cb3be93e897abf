// The bar that moves through a run: play and pause, step, to either end, a scrubber, speeds of the measured clock.
// Moves one number (playhead.js) and tells `moved`; draws itself from it. Knows no text, figures or charts.

import { find, make, put, shape, targetOf } from "../../core/dom.js";
import { mainLane } from "../../core/folds.js";

/** @type {Record<string, string>} */
const ICONS = {
  start: "M3 3h2v10H3z M13 3v10L6 8z",
  back: "M9.5 3v10L3 8z M11 3h2v10h-2z",
  play: "M4 2.5v11L13 8z",
  pause: "M4 3h3v10H4z M9 3h3v10H9z",
  forward: "M6.5 3v10L13 8z M3 3h2v10H3z",
  end: "M11 3h2v10h-2z M3 3v10l7-5z",
};
export const SLOWEST = 0.05; // of the measured speed: slow enough to see each forward of a small model
/** @type {[name: string, speed: number, title: string][]} */
const SPEEDS = [
  ["by step", 0, "one forward every 0.7 s"],
  ["1/20×", SLOWEST, "a twentieth of the measured speed"],
  ["½×", 0.5, "half the measured speed"],
  ["1×", 1, "the measured speed"],
  ["2×", 2, "twice the measured speed"],
];
const REST = 0.7; // seconds that a forward is shown, by step
const LONGEST = 0.25; // seconds a frame may count for: a page that was hidden does not leap
const FREE = "input, textarea, select, button, a, summary, [contenteditable], [role=tab], [role=slider]";

export class Player {
  /** @type {number} */
  speed;
  /** @type {Playhead} */
  playhead; // shown only while there is one
  /** @type {number} */
  frame;
  /** @type {number} */
  since;
  /** @type {number} */
  rested;
  /** @type {HTMLElement} */
  play;
  /** @type {{ button: HTMLButtonElement, speed: number }[]} */
  speeds;

  /**
   * @param {HTMLElement} element
   * @param {() => void} moved
   */
  constructor(element, moved) {
    this.element = element;
    this.moved = moved;
    this.isPlaying = false;
    this.isShown = false;
    this.speed = 1;
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", "Replay");
    const controls = make("div", "pl-controls");
    controls.append(
      this.button("start", "To the start", () => this.seek(0)),
      this.button("back", "One forward back", () => this.step(-1)),
      this.button("play", "Play", () => this.toggle()),
      this.button("forward", "One forward on", () => this.step(1)),
      this.button("end", "To the end", () => this.seek(Infinity)),
    );
    this.play = /** @type {HTMLElement} */ (controls.children[2]);
    this.play.classList.add("pl-play");
    this.scrubber = this.makeScrubber();
    this.position = make("span", "pl-position rv-num");
    this.live = make("button", "pl-live", "Back to live");
    this.live.type = "button";
    this.live.addEventListener("click", () => this.seek(Infinity));
    this.marks = make("div", "pl-marks");
    const track = make("div", "pl-track");
    track.append(this.marks, this.scrubber);
    element.replaceChildren(controls, track, this.position, this.live, this.makeSpeeds());
    this.stillness = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.stillness.addEventListener("change", () => this.draw());
  }

  /**
   * @param {string} name
   * @param {string} label
   * @param {() => void} act
   */
  button(name, label, act) {
    const button = make("button");
    button.type = "button";
    const icon = shape("svg", "", { viewBox: "0 0 16 16", "aria-hidden": "true" });
    icon.append(shape("path", ""));
    button.append(icon);
    button.addEventListener("click", act);
    dress(button, name, label);
    return button;
  }

  makeScrubber() {
    const scrubber = make("input", "pl-scrubber");
    Object.assign(scrubber, { type: "range", min: "0", step: "any" });
    scrubber.setAttribute("aria-label", "Place in the run, in measured time");
    scrubber.addEventListener("input", () => {
      this.isPlaying = false;
      this.seek(Number(scrubber.value));
    });
    return scrubber;
  }

  makeSpeeds() {
    const group = make("div", "pl-speeds");
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", "Speed of the replay");
    this.speeds = SPEEDS.map(([name, speed, title]) => {
      const button = make("button", "rv-num", name);
      Object.assign(button, { type: "button", title });
      button.addEventListener("click", () => {
        this.speed = speed;
        this.draw();
      });
      group.append(button);
      return { button, speed };
    });
    return group;
  }

  /**
   * A span of time on the scrubber: what is zoomed or chosen in the charts, where the faster lane ended.
   * @param {string} kind
   * @param {Span | null | undefined} span
   */
  mark(kind, span) {
    const { length } = this.playhead;
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

  // Whether the run moves on as it is: played, or live and followed.
  get isMoving() {
    return this.isPlaying || (this.playhead.isFollowing && this.playhead.isLive);
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

  nextTick() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame((now) => this.tick(now));
  }

  /** @param {number} now */
  tick(now) {
    const { playhead } = this;
    if (!this.isPlaying || !this.element.isConnected) return;
    const passed = Math.min(LONGEST, Math.max(0, now - this.since) / 1000);
    this.since = now;
    this.rested += passed;
    const speed = this.stillness.matches ? 0 : this.speed;
    if (speed) playhead.seek(playhead.time + passed * speed);
    else if (this.rested >= REST) {
      this.rested = 0;
      playhead.next();
    }
    if (playhead.isFollowing) this.isPlaying = false;
    this.moved();
    this.nextTick();
  }

  /**
   * Space plays from anywhere in the view that has no use for it; arrows, Home and End move where this bar has focus.
   * @param {KeyboardEvent} event
   */
  key(event) {
    const { key } = event;
    const target = targetOf(event);
    if (!this.isShown || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey)
      return;
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
    const { playhead, scrubber } = this;
    if (!this.isShown) return;
    const main = mainLane(playhead.run);
    const [now, length] = [playhead.now, playhead.length];
    const place = `forward ${playhead.shown(main)} of ${main.steps.length}`;
    put(this.position, `${place} · ${now.toFixed(3)} s`);
    scrubber.max = String(length);
    if (scrubber.value !== String(now)) scrubber.value = String(now);
    this.describe(`${place}, ${now.toFixed(3)} seconds`);
    scrubber.style.setProperty("--pl-share", `${length ? (100 * now) / length : 0}%`);
    dress(this.play, this.isMoving ? "pause" : "play", this.isMoving ? "Pause" : "Play");
    for (const node of [...find(this.element, ".pl-controls").children, scrubber])
      /** @type {HTMLButtonElement | HTMLInputElement} */ (node).disabled = length === 0;
    this.live.hidden = !playhead.isLive || playhead.isFollowing;
    const isStill = this.stillness.matches;
    for (const { button, speed } of this.speeds) {
      button.hidden = isStill && speed > 0;
      button.setAttribute("aria-pressed", String(speed === (isStill ? 0 : this.speed)));
    }
  }

  /**
   * While the run moves by itself, a reader of the screen hears of it at most once a second.
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
 * @param {HTMLElement} button
 * @param {string} icon
 * @param {string} label
 */
function dress(button, icon, label) {
  if (button.dataset.act === icon) return;
  button.dataset.act = icon;
  button.title = label;
  button.setAttribute("aria-label", label);
  button.querySelector("path")?.setAttribute("d", ICONS[icon]);
}
