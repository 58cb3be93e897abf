// The scenes of the slides: pictures of a recorded pass, and races in large type. The text of a recorded race grows pass
// by pass, or at the recorded speed (slowed down equally in all lanes); a live run is drawn as it arrives. If a live run
// fails or does not start, the recording replaces it and a message says so.

import { button, legendItem, make, put } from "../core/dom.js";
import { CLOCKS } from "../core/clocks.js";
import { folds, headerOf, lengthOf, numUntil } from "../core/folds.js";
import { afterLoop } from "../core/loops.js";
import { recording } from "../core/recordings.js";
import { resultOf } from "../core/result.js";
import { LEGEND } from "../core/texts.js";
import { capital, counted, figure, joined, verdictText } from "../core/words.js";
import { Picture } from "../explain/pictures.js";
import { repairs } from "../explain/rungs.js";
import { TokenView } from "../text/text.js";
import { SENTENCES } from "./stops.js";

const PLAYED_IN = 8; // seconds in which the slowest lane of a recording is played
const SIZES = [2, 1.8, 1.6, 1.4, 1.2, 1.05, 0.95, 0.85, 0.75, 0.65, 0.55]; // relative font sizes, of which the largest that fits is used
const SILENT = { token() {}, leave() {}, choose() {} };

// Shows a picture of recorded passes. Each beat shows a pass, counted from the last pass that repaired a draft, or a
// threshold.
export class PictureScene {
  /** @param {HTMLElement} element @param {SceneSpec} spec */
  constructor(element, { recording: name, picture = "", beats = [] }) {
    const recorded = recording(name);
    this.beats = recorded ? beats : [];
    this.picture = recorded && new Picture(recorded.lanes[0], picture);
    this.model = recorded ? headerOf(recorded.lanes[0]).checkpoint : "";
    if (this.picture) element.append(this.picture.element);
    const note = recorded ? `Prompt: “${recorded.prompt}” Recorded ${recorded.note}.` : SENTENCES.noRecording;
    element.append(make("p", "pr-mark", note));
  }

  /** @param {number} index */
  beat(index) {
    const { picture } = this;
    if (!picture) return;
    const { from, tau } = this.beats[index];
    const found = repairs(picture.lane);
    const last = picture.kind === "repair" ? found.at(from ?? -1) : (found.at(-1) ?? 0) + (from ?? -1);
    picture.show(Math.max(0, last ?? 0), tau);
  }

  leave() {}
}

/** @param {HTMLElement} text */
const isWhole = (text) => text.scrollHeight <= text.clientHeight + 1;

class Column {
  /** @param {Lane} lane */
  constructor(lane) {
    this.lane = lane;
    this.text = make("div", "rv-text");
    this.passes = make("b");
    this.facts = make("span");
    this.count = make("p", "pr-count rv-num", this.passes, " ", this.facts);
    this.element = make(
      "article",
      { class: "pr-lane", "data-lane": lane.name },
      make("h3", "", capital(lane.title)),
      this.text,
      this.count,
    );
    this.view = new TokenView(this.text, lane, true, SILENT);
  }

  /** @param {Lane} shown @param {boolean} [isTimed] */
  draw(shown, isTimed = false) {
    if (!this.lane.header) return;
    this.view.append(shown);
    this.view.markDamage();
    if (!isWhole(this.text)) this.text.classList.add("pr-long");
    this.view.follow();
    this.element.dataset.method = this.lane.method;
    const time = isTimed ? `${figure(folds.seconds(shown))} s` : "";
    put(this.passes, counted(folds.forwards(shown), "pass", "passes"));
    put(
      this.facts,
      joined(
        afterLoop([shown], counted(folds.tokens(shown), "token")),
        time,
        shown.end ? verdictText(shown.verdict) : "",
      ),
    );
  }
}

export class RaceScene {
  /** @type {Column[]} */
  columns = [];
  /** @type {Lane[]} */
  lanes = [];
  time = 0;
  target = 0;
  speed = 0; // units of the clock per second of playback
  length = 0;
  /** @type {number | null} */
  frame = null;
  /** @type {LiveRun | null} */
  live = null;

  /** @param {HTMLElement} element @param {SceneSpec} spec */
  constructor(element, spec) {
    this.spec = spec;
    this.clock = CLOCKS[spec.clock || "passes"];
    this.recorded = recording(spec.recording);
    this.prompt = make("p", "pr-prompt");
    this.panes = make("div", "pr-lanes");
    this.won = make("p", "pr-result");
    this.mark = make("p", { class: "pr-mark", role: "status" });
    this.keys = make("p", "pr-keys");
    element.append(this.prompt, this.panes, this.won, make("div", "pr-foot", this.mark, this.keys));
    this.beats = this.recorded ? spec.beats : [];
    this.model = this.recorded?.lanes[0].header?.checkpoint ?? "";
    if (this.recorded) this.useRecording();
    else put(this.mark, SENTENCES.noRecording);
  }

  /** @param {string} [warning] */
  useRecording(warning = "") {
    const { recorded, spec } = this;
    if (!recorded) return;
    this.live = null;
    this.lanes = recorded.lanes.filter(({ name }) => spec.lanes?.includes(name));
    this.length = Math.max(...this.lanes.map((lane) => lengthOf(lane, this.clock)));
    const slow = Math.max(1, Math.round(PLAYED_IN / this.length));
    const isTimed = this.clock === CLOCKS.seconds;
    this.speed = isTimed ? 1 / slow : this.length / PLAYED_IN;
    this.time = 0;
    this.show(this.lanes);
    put(this.prompt, `“${recorded.prompt}”`);
    const pace = isTimed ? (slow > 1 ? `, all lanes slowed ${slow}×` : "") : ", pass by pass";
    this.note = `${warning ? `${warning} ` : ""}Recorded ${recorded.note}${pace}.`;
    this.mark.dataset.kind = warning ? "fallback" : "recorded";
    this.keys.replaceChildren(
      legendItem("rv-swatch rv-by-ar", LEGEND.pass),
      legendItem("rv-swatch rv-c rv-n3", SENTENCES.ahead),
      ...(spec.lanes?.includes("lookup") ? [legendItem("rv-swatch rv-by rv-by-lookup", LEGEND.lookup)] : []),
    );
    this.fit();
    this.draw();
  }

  // Sets the largest font size at which the whole text of every lane fits; a longer text is scrolled.
  fit() {
    if (!this.columns.length) return;
    this.time = this.length;
    this.draw(); // with all that is shown at the end, which takes some of the space
    for (const { text } of this.columns) text.classList.remove("pr-long");
    for (const size of SIZES) {
      this.panes.style.setProperty("--fit", String(size));
      if (this.columns.every(({ text }) => isWhole(text))) break;
    }
    this.time = 0;
  }

  /** @param {Lane[]} lanes */
  show(lanes) {
    this.columns = lanes.map((lane) => new Column(lane));
    this.panes.replaceChildren(...this.columns.map((column) => column.element));
    this.panes.dataset.count = String(lanes.length);
  }

  /**
   * Shows a beat, a part of the race that ends at a certain pass. isPlayed: whether the race is played up to there from
   * the current position; otherwise the end of the beat is shown at once.
   * @param {number} index @param {boolean} isPlayed
   */
  beat(index, isPlayed) {
    if (this.live) this.useRecording();
    const { until } = this.beats[index];
    const steps = this.lanes[0].steps;
    this.target = typeof until === "number" ? this.clock.end(steps[Math.min(until, steps.length) - 1]) : this.length;
    this.stop();
    if (isPlayed && this.time < this.target) return this.play();
    this.time = this.target;
    return this.draw();
  }

  play() {
    let before = performance.now();
    /** @param {number} now */
    const tick = (now) => {
      this.time = Math.min(this.target, this.time + (Math.max(0, now - before) / 1000) * this.speed);
      before = now;
      this.draw();
      this.frame = this.time < this.target ? requestAnimationFrame(tick) : null;
    };
    this.frame = requestAnimationFrame(tick);
  }

  stop() {
    cancelAnimationFrame(this.frame || 0);
    this.frame = null;
  }

  draw() {
    const isOver = this.time >= this.length;
    for (const column of this.columns) {
      const { lane } = column;
      column.draw(isOver ? lane : lane.at(numUntil(lane, this.time, this.clock)), this.clock === CLOCKS.seconds);
    }
    put(this.won, isOver ? this.result(true) : "");
    put(this.mark, this.note || "");
    const isComplete = this.columns.every(({ view }) => view.isWhole); // a jump over many passes takes several frames
    if (!isComplete && this.panes.isConnected) requestAnimationFrame(() => this.draw());
  }

  // What the finished race shows: its passes, the third lane and the time.
  result(isRecorded = false) {
    const [main, ...others] = this.columns.map(({ lane }) => lane);
    const { first, rest, figures } = resultOf(main, others, isRecorded);
    const more = figures.filter(({ key, value }) => key !== "perPass" && value);
    return [`${first}${rest}`, ...more.map(({ name, value }) => `${name && `${name}: `}${value}.`)].join(" ");
  }

  get canLive() {
    return Boolean(this.recorded && this.spec.isLive && LiveRun.isPossible());
  }

  // Runs the recording's prompt with its settings live.
  goLive() {
    if (this.recorded) this.ask(this.recorded.prompt);
  }

  /** @param {string} prompt */
  ask(prompt) {
    if (!this.recorded) return;
    this.leave();
    put(this.prompt, `“${prompt}”`);
    put(this.mark, SENTENCES.starting);
    this.mark.dataset.kind = "asking";
    const { checkpoint, settings } = headerOf(this.lanes[0]);
    const order = { prompt, checkpoint, settings, limit: settings.max_new_tokens };
    this.live = new LiveRun(order, this);
  }

  get isLive() {
    return Boolean(this.live);
  }

  /** @param {boolean} isOver */
  drawLive(isOver) {
    for (const column of this.columns) column.draw(column.lane);
    put(this.won, isOver ? this.result() : "");
    put(this.mark, SENTENCES.live);
    this.mark.dataset.kind = isOver ? "live-over" : "live";
  }

  /** @param {string} sentence */
  fallBack(sentence) {
    this.useRecording(sentence);
    this.beat(this.beats.length - 1, !matchMedia("(prefers-reduced-motion: reduce)").matches);
  }

  leave() {
    this.stop();
    if (this.live) this.live.leave();
    this.live = null;
  }
}

// The audience's prompts: a box, and the page's examples, which run live next to plain AR. Without a server the
// recording stays.
export class AskScene extends RaceScene {
  /** @param {HTMLElement} element @param {SceneSpec} spec */
  constructor(element, spec) {
    super(element, spec);
    const box = make("input", { placeholder: SENTENCES.ask, "aria-label": SENTENCES.askName });
    const run = (prompt = box.value.trim()) => {
      if (!prompt) return;
      box.value = prompt;
      this.ask(prompt);
      /** @type {HTMLElement | null} */ (box.closest("dialog"))?.focus();
    };
    const form = make("form", "pr-ask", box, make("button", "", "Run"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      run();
    });
    form.addEventListener("keydown", (event) => event.stopPropagation()); // these keys do not drive the slides
    const prompts = (spec.prompts || []).map((prompt) => button("", prompt, () => run(prompt)));
    if (LiveRun.isPossible()) this.prompt.before(form, make("div", "pr-prompts", ...prompts));
    this.fit(); // again, because the box takes some of the space
  }
}

const PATIENCE = 3000; // milliseconds without a first token after which the recording is shown
const LONGEST = 100; // maximum milliseconds that a frame counts as waiting, so that a slow browser is not a late server

// A live run in the race view of the page behind the tour. It is requested like a run from any view, and its lanes are
// drawn as they grow. The page stores the values of its controls and restores them when the tour is closed.
class LiveRun {
  /** @type {boolean} */
  hasBegun;

  // Returns whether the page can run prompts; a separate page has no Run button.
  static isPossible() {
    return Boolean(document.getElementById("run") && LiveRun.view());
  }

  static view() {
    return document.querySelector("#race .mars-race")?.lineView;
  }

  /**
   * @param {Omit<SettingsDetail, "kind">} order
   * @param {RaceScene} scene gets the lanes at the first token, is drawn once per frame, and falls back to its recording
   */
  constructor(order, scene) {
    this.scene = scene;
    this.view = /** @type {View} */ (LiveRun.view()); // exists if isPossible()
    this.before = this.view.run;
    const detail = { kind: "settings", isKept: true, ...order };
    this.view.root.dispatchEvent(new CustomEvent("mars-ask", { bubbles: true, detail }));
    this.waited = 0;
    this.frameBefore = performance.now();
    this.frame = requestAnimationFrame((now) => this.follow(now));
  }

  /** @param {number} now */
  follow(now) {
    this.waited += Math.min(LONGEST, now - this.frameBefore);
    this.frameBefore = now;
    const { run, root } = this.view;
    const isOurs = run && run !== this.before;
    const hasFailed = isOurs && (root.dataset.state === "error" || run.fault);
    const isLate = !this.hasBegun && this.waited > PATIENCE;
    if (hasFailed || isLate) {
      this.leave();
      return this.scene.fallBack(hasFailed ? SENTENCES.failed : SENTENCES.late);
    }
    if (isOurs && !this.hasBegun && run.lanes.length && run.lanes[0].tokens.length) {
      this.hasBegun = true;
      this.scene.show(run.lanes);
    }
    const isOver = this.hasBegun && run.lanes.every((lane) => lane.end);
    if (this.hasBegun) this.scene.drawLive(isOver);
    if (!isOver) this.frame = requestAnimationFrame((next) => this.follow(next));
    return undefined;
  }

  // Stops following the run, and stops the run itself if it is still in progress.
  leave() {
    cancelAnimationFrame(this.frame);
    const { run } = this.view;
    const isOver = run && run !== this.before && run.lanes.every((lane) => lane.end);
    if (!isOver) document.getElementById("stop")?.click();
  }
}
