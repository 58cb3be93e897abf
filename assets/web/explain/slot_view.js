// Recorded forwards as cache slots, lane under lane: what goes in, what comes out, what becomes of it.
// Two moments per forward: fed, then read. Drawn once, then only classes and texts change.

import { make, put, targetOf } from "../core/dom.js";
import { headerOf, lastOf } from "../core/folds.js";
import { counted, probability } from "../core/words.js";
import { legend } from "./slot_words.js";
import { momentOf } from "./slots.js";

/** @type {Record<string, string>} */
const NAMES = { final: "final", pending: "fed again", draft: "draft", mask: "mask", ahead: "" };
/** @type {Record<string, string>} */
const MARKS = { accepted: "✓", agreed: "✓", replaced: "↺", refused: "✗", dropped: "✗", draft: "?" };

class SlotLane {
  /** @type {{ place: number, above: HTMLElement, below: HTMLElement }[]} */
  columns;
  /** @type {SlotRun} */
  run;
  /** @type {number} */
  width;

  /** @param {SlotRun} run */
  constructor(run) {
    this.run = run;
    this.element = make("section", "ex-lane");
    this.count = make("span", "ex-count");
    const head = make("header", "ex-lanehead");
    head.append(make("h4", "", run.title), this.count);
    this.strip = make("div", "ex-strip");
    this.strip.tabIndex = 0;
    this.strip.setAttribute("role", "group");
    this.strip.setAttribute("aria-label", `Cache slots of ${run.title}. Left and right arrows step, space plays.`);
    this.grid = make("div", "ex-slots");
    this.grid.setAttribute("aria-hidden", "true");
    this.strip.append(this.grid);
    this.bar = make("div", "ex-bar");
    this.parts = ["final", "pending", "mask"].map((kind) => this.bar.appendChild(make("i", `ex-part ex-${kind}`)));
    this.element.append(head, this.strip, this.bar);
    this.build();
  }

  // One column per place; above what is fed there, below what is predicted for it.
  build() {
    const { run } = this;
    this.width = Math.max(...run.forwards.map((f) => Math.max(f.first + f.numFed, lastOf(f.predicted).place + 1))) + 1;
    this.grid.style.setProperty("--n", String(this.width));
    this.columns = [];
    for (let place = -1; place < this.width - 1; place += 1) {
      const above = make("span", "ex-cell ex-in");
      const below = make("span", "ex-cell ex-out");
      above.style.gridArea = `1 / ${place + 2}`;
      below.style.gridArea = `2 / ${place + 2}`;
      this.grid.append(above, below);
      this.columns.push({ place, above, below });
    }
  }

  /**
   * @param {number} count
   * @param {boolean} isFed
   */
  show(count, isFed) {
    const state = momentOf(this.run, count, isFed);
    for (const column of this.columns) this.drawColumn(column, state);
    const { now } = state;
    const isDone = state.isOver && state.isRead;
    put(
      this.count,
      `forward ${now ? now.index + 1 : 0} of ${this.run.forwards.length} · ${counted(state.tokens, "token")} out · ${counted(state.fed, "slot")} computed${isDone ? " · done" : ""}`,
    );
    this.drawBar(now);
    this.follow(state);
    return state;
  }

  /**
   * @param {{ place: number, above: HTMLElement, below: HTMLElement }} column
   * @param {SlotMoment} moment
   */
  drawColumn({ place, above, below }, { now, isRead }) {
    const slot = now && now.fed[place - now.first];
    const kind = slot ? slot.kind : now && place < now.first ? "final" : "ahead";
    const id = slot ? slot.id : place < 0 ? lastOf(headerOf(this.run.lane).prompt_ids) : this.run.emitted[place];
    above.className = `ex-cell ex-in ex-${kind}`;
    put(above, kind === "mask" ? "M" : kind === "ahead" ? "" : this.name(place, id));
    above.title = NAMES[kind];
    const guess = isRead && now && now.predicted[place - now.start];
    const fill =
      guess && ["accepted", "agreed", "replaced"].includes(guess.fate)
        ? ` ex-n${Math.min(now.accepted.length, 5)}`
        : "";
    below.className = `ex-cell ex-out ${guess ? `ex-${guess.fate}${fill}` : "ex-empty"}`;
    put(below, guess ? this.run.lane.tokenName(guess.id) : "");
    below.dataset.mark = guess ? MARKS[guess.fate] : "";
    below.title = guess ? `${guess.fate}, confidence ${probability(guess.confidence)}` : "";
  }

  /**
   * @param {number} place
   * @param {number | null} id
   */
  name(place, id) {
    const isKnown = id !== null && this.run.lane.vocabulary.has(id);
    return isKnown ? this.run.lane.tokenName(id) : place < 0 ? "…" : `#${id}`;
  }

  /** @param {SlotForward | undefined} now */
  drawBar(now) {
    const spans = now ? [now.first + 1, now.numPending, now.numFed - now.numPending] : [0, 0, 0];
    this.parts.forEach((part, i) => {
      part.style.width = `${(100 * spans[i]) / this.width}%`;
    });
  }

  /**
   * Keeps what the forward feeds in sight; once read, and where there is no room for both, what it predicted.
   * @param {{ now: SlotForward | undefined, isRead: boolean }} given
   */
  follow({ now, isRead }) {
    if (!now) return;
    const cell = this.columns[1].above.offsetLeft - this.columns[0].above.offsetLeft;
    const isTight = (now.numFed + 3) * cell > this.strip.clientWidth;
    const place = isRead && isTight ? now.start - 2 : now.first - 1;
    this.strip.scrollLeft = this.columns[Math.max(0, place + 1)].above.offsetLeft - 2;
  }
}

export class SlotPlayer {
  /** @type {HTMLInputElement} */
  range;
  /** @type {number | null} */
  timer;
  /** @type {HTMLButtonElement} */
  button;

  /**
   * @param {HTMLElement} element
   * @param {SlotRun[]} runs
   * @param {(states: SlotMoment[], runs: SlotRun[]) => string} words
   */
  constructor(element, runs, words) {
    this.runs = runs;
    this.mismatches = runs[0].forwards.filter((f) => f.stop === "mismatch");
    this.words = words;
    this.moment = 0;
    this.last = 2 * Math.max(...runs.map((run) => run.forwards.length));
    this.lanes = runs.map((run) => new SlotLane(run));
    this.said = make("p", "ex-said");
    this.said.setAttribute("aria-live", "polite");
    element.append(this.controls(), this.said, ...this.lanes.map((lane) => lane.element), legend(runs));
    element.addEventListener("keydown", (event) => this.key(event));
    this.show(1);
  }

  controls() {
    const box = make("div", "ex-controls");
    /**
     * @param {string} text
     * @param {string} label
     * @param {() => void} act
     */
    const button = (text, label, act) => {
      const node = make("button", "", text);
      node.type = "button";
      node.setAttribute("aria-label", label);
      node.addEventListener("click", act);
      box.append(node);
      return node;
    };
    button("‹", "Step back", () => this.step(-1));
    this.button = button("Play", "Play", () => this.toggle());
    this.button.classList.add("ex-play");
    button("›", "Step forward", () => this.step(1));
    this.range = make("input");
    Object.assign(this.range, { type: "range", min: 0, max: this.last, step: 1 });
    this.range.setAttribute("aria-label", "Moment of the run");
    this.range.addEventListener("input", () => this.seek(Number(this.range.value)));
    box.append(this.range);
    if (this.mismatches.length) {
      button("Next mismatch", "Go to the next mismatch", () => this.toMismatch()).classList.add("ex-word");
    }
    return box;
  }

  /**
   * The first mismatch from forward `from` on, or the first of all; for the moment at which it is fed.
   * @param {number} from
   */
  mismatch(from) {
    const { mismatches } = this;
    return (mismatches.find(({ index }) => index >= from) ?? mismatches[0]).index;
  }

  // The one before which AR agreed with most drafts.
  tellingMismatch() {
    const { mismatches } = this;
    return (
      mismatches.reduce((best, f) => (f.accepted.length > best.accepted.length ? f : best), mismatches[0])?.index ?? 0
    );
  }

  toMismatch() {
    this.seek(2 * this.mismatch(Math.floor((this.moment + 1) / 2)) + 1);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const isButton = targetOf(event).tagName === "BUTTON";
    if (event.target === this.range || event.ctrlKey || event.metaKey || event.altKey) return;
    /** @type {Record<string, () => void>} */
    const acts = {
      ArrowRight: () => this.step(1),
      ArrowLeft: () => this.step(-1),
      Home: () => this.seek(0),
      End: () => this.seek(this.last),
    };
    if (!isButton) acts[" "] = () => this.toggle();
    if (!acts[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  }

  /** @param {number} by */
  step(by) {
    this.seek(this.moment + by);
  }

  /** @param {number} moment */
  seek(moment) {
    this.pause();
    this.show(Math.max(0, Math.min(this.last, moment)));
  }

  // With reduced motion nothing plays: the button steps.
  toggle() {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) this.step(1);
    else if (this.timer) this.pause();
    else this.play();
  }

  play() {
    if (this.moment >= this.last) this.show(0);
    this.pause();
    this.timer = setInterval(() => {
      if (this.moment >= this.last || !this.range.isConnected) this.pause();
      else this.show(this.moment + 1);
    }, 900);
    this.face();
  }

  pause() {
    clearInterval(this.timer ?? undefined);
    this.timer = null;
    this.face();
  }

  face() {
    const isPlaying = Boolean(this.timer);
    put(this.button, isPlaying ? "Pause" : "Play");
    this.button.setAttribute("aria-label", isPlaying ? "Pause" : "Play");
  }

  /**
   * Moment 2k: k forwards are done and the last one read; 2k + 1: what the next one feeds, not read yet.
   * @param {number} moment
   */
  show(moment) {
    this.moment = moment;
    const isFed = moment % 2 === 1;
    const states = this.lanes.map((lane) => lane.show(Math.floor(moment / 2), isFed));
    this.range.value = String(moment);
    this.range.setAttribute("aria-valuetext", `forward ${Math.ceil(moment / 2)}`);
    put(this.said, this.words(states, this.runs));
  }
}
