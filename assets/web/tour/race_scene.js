// Scenes of the tour that show a race in large type. The text of a recording grows pass by pass, or at the recorded
// speed (slowed down equally in all lanes); a live run is drawn as it arrives. If a live run fails or does not start,
// the recording replaces it and a message says so.

import { button, legendItem, make, put, targetOf } from "../core/dom.js";
import { LEGEND } from "../core/texts.js";
import { CLOCKS } from "../core/clocks.js";
import { divergence, folds, headerOf, lengthOf, numUntil } from "../core/folds.js";
import { afterLoop } from "../core/loops.js";
import { resultOf } from "../core/result.js";
import { Lane } from "../core/trace.js";
import { capital, counted, figure, joined, probability, short, verdictText } from "../core/words.js";
import { recording } from "../explain/explain.js";
import { TauPicture } from "../explain/tau.js";
import { TokenView } from "../text/text.js";
import { SENTENCES } from "./stops.js";

const PLAYED_IN = 8; // seconds in which the slowest lane of a recording is played
const SIZES = [2, 1.8, 1.6, 1.4, 1.2, 1.05, 0.95, 0.85]; // relative font sizes, of which the largest that fits is used
const SCROLLED = 1.05; // font size of a text that does not fit at any of these sizes, so that it is scrolled
const SILENT = { token() {}, leave() {}, choose() {} };

/**
 * Returns the number (from 1) of the first pass that rejected a proposal below the threshold, preferably after it had
 * accepted more than one token; 1 if there is none.
 * @param {Step[]} steps
 */
function refusal(steps) {
  const stopped = steps.filter((step) => step.stop === "threshold");
  const best = stopped.find((step) => step.count > 1) || stopped[0];
  return best ? best.index + 1 : 1;
}

/**
 * Describes a finished live race: its passes and its speed.
 * @param {Lane} main
 * @param {Lane} other
 */
export function resultText(main, other) {
  const { first, rest, figures } = resultOf(main, [other]);
  return joined(`${first}${rest}`, figures.find(({ key }) => key === "time")?.value);
}

/**
 * Creates the legend of the marks in the texts of these lanes.
 * @param {Lane[]} lanes
 */
function marksOf(lanes) {
  const sources = new Set(lanes.flatMap(({ steps }) => steps.flatMap((step) => step.sources)));
  return [
    legendItem("rv-swatch rv-by-ar", LEGEND.pass),
    legendItem("rv-swatch rv-c rv-n3", SENTENCES.ahead),
    ...(sources.has("look-up") ? [legendItem("rv-swatch rv-by rv-by-lookup", LEGEND.lookup)] : []),
  ];
}

class Column {
  /** @param {Lane} lane */
  constructor(lane) {
    this.lane = lane;
    this.text = make("div", "rv-text");
    this.text.addEventListener("scroll", () => this.fade());
    this.passes = make("b");
    this.facts = make("span");
    this.more = ""; // a remark after the other facts
    this.hasTau = true;
    this.count = make("p", "pr-count rv-num", this.passes, " ", this.facts);
    this.element = make("article", "pr-lane", make("h3", "", capital(lane.title)), this.text, this.count);
    this.view = new TokenView(this.text, lane, true, SILENT);
  }

  /** @param {Lane} shown */
  draw(shown) {
    if (!this.lane.header) return;
    this.view.append(shown);
    this.view.markDamage();
    this.view.follow();
    this.element.dataset.method = this.lane.method;
    const [tokens, forwards] = [folds.tokens(shown), folds.forwards(shown)];
    const done = shown.end ? verdictText(shown.verdict) : "";
    const tau =
      this.hasTau && !this.lane.isAr && shown.settings && !shown.settings.lossless
        ? `τ ${short(shown.settings.tau)}`
        : "";
    put(this.passes, counted(forwards, "pass", "passes"));
    put(this.facts, joined(afterLoop([shown], counted(tokens, "token")), tau, done, this.more));
  }

  // Scrolls a text that does not fit to its beginning, also after a change of size.
  toTop() {
    this.view.toTop();
    this.fade();
  }

  // Fades the edges at which lines are cut off.
  fade() {
    const { scrollTop, scrollHeight, clientHeight, classList } = this.text;
    classList.toggle("pr-above", scrollTop > 0);
    classList.toggle("pr-below", scrollHeight - scrollTop - clientHeight > 1);
  }
}

export class RaceScene {
  /** @type {Column[]} */
  columns;
  /** @type {Lane[]} */
  lanes;
  /** @type {number} */
  time;
  /** @type {number} */
  target;
  /** @type {number} */
  speed; // units of the clock per second of playback
  /** @type {number} */
  length;
  /** @type {number | null} */
  frame;
  /** @type {LiveRun | null} */
  live;
  /** @type {HTMLElement | null} */
  why;

  /**
   * @param {HTMLElement} element
   * @param {SceneSpec} spec
   */
  constructor(element, spec) {
    this.spec = spec;
    this.clock = CLOCKS[spec.clock || "passes"];
    this.recorded = recording(spec.recording || "");
    this.prompt = make("p", "pr-prompt");
    this.note = "";
    this.panes = make("div", "pr-lanes");
    this.mark = make("p", { class: "pr-mark", role: "status" });
    this.keys = make("p", "pr-keys");
    element.append(this.prompt, this.panes, make("div", "pr-foot", this.mark, this.keys));
    this.beats = (this.recorded && spec.beats) || [];
    if (this.recorded) this.useRecording();
    else put(this.mark, SENTENCES.noRecording);
  }

  /** @param {string} [note] */
  useRecording(note = "") {
    const { recorded, spec } = this;
    if (!recorded) return;
    this.live = null;
    const lanes = recorded.lanes.map(({ name, title, lines }) =>
      Object.assign(Lane.of(lines, { lane: name, title }), { verdict: recorded.verdicts[name] ?? null }),
    );
    this.lanes = spec.isAlone ? lanes.slice(0, 1) : lanes;
    this.length = Math.max(...this.lanes.map((lane) => lengthOf(lane, this.clock)));
    const slow = Math.max(1, Math.round(PLAYED_IN / this.length));
    this.speed = this.clock === CLOCKS.seconds ? 1 / slow : this.length / PLAYED_IN;
    this.time = 0;
    this.show(this.lanes);
    put(this.prompt, `“${recorded.prompt}”`);
    const both = this.lanes.length > 1 ? "both lanes " : "";
    let pace = ", pass by pass";
    if (this.clock === CLOCKS.seconds) pace = slow > 1 ? `, ${both}slowed ${slow}×` : "";
    this.note = `Recorded ${recorded.note}`;
    put(this.mark, `${note ? `${note} ` : ""}${this.note}${pace}.`);
    this.mark.dataset.kind = note ? "fallback" : "recorded";
    this.keys.replaceChildren(...marksOf(this.lanes));
    this.fit();
    this.draw();
  }

  // Sets the largest font size at which the whole text of every lane fits.
  fit() {
    for (const column of this.columns) column.draw(column.lane);
    /** @param {number} size */
    const set = (size) => this.panes.style.setProperty("--fit", String(size));
    const fitting = SIZES.find((size) => {
      set(size);
      return this.columns.every(({ text }) => text.scrollHeight <= text.clientHeight + 1);
    });
    if (!fitting) set(SCROLLED);
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
   * @param {number} index
   * @param {boolean} isPlayed
   */
  beat(index, isPlayed) {
    if (this.live) this.useRecording();
    const { until, why } = this.beats[index];
    const steps = this.lanes[0].steps;
    const number = typeof until === "number" ? until : refusal(steps);
    this.target = until === "end" ? this.length : this.clock.end(steps[Math.min(number, steps.length) - 1]);
    this.explain(why ? number : 0);
    if (isPlayed && this.time < this.target) return this.play();
    this.stop();
    this.time = this.target;
    return this.draw();
  }

  play() {
    this.stop();
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

  get isPlaying() {
    return Boolean(this.frame || this.live);
  }

  draw() {
    const isOver = this.time >= this.length;
    for (const column of this.columns) {
      const { lane } = column;
      const count = numUntil(lane, this.time, this.clock);
      const shown = isOver ? lane : lane.at(count);
      if (this.clock === CLOCKS.seconds) column.more = `${figure(folds.seconds(shown))} s`;
      column.draw(shown);
    }
    const isComplete = this.columns.every(({ view }) => view.isWhole); // a jump over many passes takes several frames
    if (!isComplete && this.panes.isConnected) requestAnimationFrame(() => this.draw());
  }

  /**
   * Shows the proposals of a pass next to the text. number: number of the pass, from 1; 0 removes the proposals.
   * @param {number} number
   */
  explain(number) {
    if (this.why) this.why.remove();
    this.why = null;
    this.panes.classList.toggle("pr-has-why", Boolean(number));
    if (!number || !this.recorded) return;
    const [lane] = this.lanes;
    const step = lane.steps[Math.min(number, lane.steps.length) - 1];
    const { tau } = step.settings;
    const picture = new TauPicture(lane);
    const count = picture.show(step.index, tau);
    const rejected = step.proposals[count];
    const reason = rejected
      ? ` “${lane.tokenName(rejected[0])}” is at ${probability(rejected[1])}, below τ ${short(tau)}.`
      : "";
    this.why = make(
      "article",
      "pr-why",
      make("h3", "", `Pass ${step.index + 1}: ${count} of ${step.proposals.length} accepted`),
      picture.element,
      make("p", "pr-reason", `${reason} ${SENTENCES.rest}`.trim()),
    );
    this.panes.append(this.why);
  }

  get canLive() {
    return Boolean(this.recorded && this.spec.isLive && LiveRun.isPossible());
  }

  // Runs the recording's prompt with its settings live.
  goLive() {
    const { recorded } = this;
    if (!recorded) return;
    this.leave();
    this.explain(0);
    put(this.mark, SENTENCES.starting);
    this.mark.dataset.kind = "asking";
    this.ask(recorded.prompt);
  }

  /**
   * Runs a prompt live, with the recording's model and settings.
   * @param {string} prompt
   */
  ask(prompt) {
    const { lanes } = /** @type {Recording} */ (this.recorded);
    const { checkpoint, settings } = JSON.parse(lanes[0].lines[0]);
    const way = { prompt, checkpoint, settings, limit: settings.max_new_tokens };
    this.live = new LiveRun(way, {
      begin: (lanes_) => this.show(lanes_),
      draw: (isOver) => this.drawLive(isOver),
      fail: (sentence) => this.fallBack(sentence),
    });
  }

  get isLive() {
    return Boolean(this.live);
  }

  // The lanes that the next stop can refer to, and a note on their origin. They are the lanes of the live run if it has
  // finished, and those of the recording otherwise.
  get told() {
    const lanes = this.columns?.map((column) => column.lane) || [];
    if (this.live && !lanes.every((lane) => lane.end)) return { lanes: this.lanes, note: this.note };
    return { lanes, note: this.live ? SENTENCES.liveNote : this.note };
  }

  get model() {
    const [lane] = this.told.lanes;
    return lane?.header ? headerOf(lane).checkpoint : "";
  }

  /** @param {boolean} isOver */
  drawLive(isOver) {
    for (const column of this.columns) column.draw(column.lane);
    const [main, other] = this.columns.map((column) => column.lane);
    const result = other && main.end && other.end ? resultText(main, other) : "";
    put(this.mark, `${SENTENCES.live} ${result}`.trim());
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

// Shows recordings of one request with several thresholds and, at the end of the dial, lossless. The dial is turned by
// the beats of the tour or by the presenter. The whole text is visible, with a mark where it first differs from AR's.
export class DialScene extends RaceScene {
  /**
   * @param {HTMLElement} element
   * @param {SceneSpec} spec
   */
  constructor(element, spec) {
    super(element, spec);
    this.recordings = (spec.recordings || []).flatMap((name) => recording(name) || []);
    this.beats = this.recordings.map(() => ({}));
    const most = Math.max(0, this.recordings.length - 1);
    this.slider = make("input", { type: "range", min: 0, max: most, step: 1, value: 0, "aria-label": "τ" });
    this.slider.addEventListener("input", () => this.turn(Number(this.slider.value)));
    this.name = make("output", "pr-dialname");
    element.insertBefore(make("div", "pr-dial", this.slider, this.name), this.panes);
    this.turn(0);
  }

  /** @param {number} index */
  turn(index) {
    if (!this.recordings[index]) return;
    this.stop();
    this.recorded = this.recordings[index];
    this.useRecording();
    this.slider.value = String(index);
    const [main, ar] = this.lanes;
    const { lossless, tau } = headerOf(main).settings;
    const words = lossless ? "lossless" : `τ ${short(tau)}, unverified`;
    put(this.name, words);
    this.slider.setAttribute("aria-valuetext", words);
    this.time = this.length;
    this.columns[0].hasTau = false; // the dial already shows τ
    this.draw();
    put(this.mark, `${this.note}.`);
    const differsAt = divergence(main, ar, 0);
    if (differsAt >= 0) for (const { view } of this.columns) view.markDivergence(differsAt);
    this.columns[0].more = differsAt < 0 ? SENTENCES.same : `differs at token ${differsAt + 1}`;
    this.columns[0].draw(main);
    for (const column of this.columns) column.toTop(); // the texts differ near the beginning
  }

  /** @param {number} index */
  beat(index) {
    this.turn(index);
  }
}

// Runs a prompt from the audience live. A recording of another prompt is shown before the live run, and if the live run
// fails.
export class AskScene extends RaceScene {
  /**
   * @param {HTMLElement} element
   * @param {SceneSpec} spec
   */
  constructor(element, spec) {
    super(element, spec);
    const attributes = { rows: 1, placeholder: SENTENCES.ask, "aria-label": SENTENCES.askName };
    this.box = make("textarea", attributes);
    this.box.addEventListener("keydown", (event) => this.typed(event));
    const form = make(
      "div",
      "pr-ask",
      this.box,
      button("", "Run", () => this.run()),
    );
    const prompts = (spec.prompts || []).map((prompt) => button("", prompt, () => this.pick(prompt)));
    if (LiveRun.isPossible()) this.prompt.before(form, make("div", "pr-prompts", ...prompts));
    if (!this.recorded) return;
    this.fit(); // again, because the box takes some of the space
    this.beat(0, false);
  }

  // Always false: this scene has its own prompt box to start live runs, so the tour's button is not needed.
  get canLive() {
    return false;
  }

  /**
   * Handles keys in the box: Enter runs the prompt, Escape leaves the box. The tour does not handle these keys.
   * @param {KeyboardEvent} event
   */
  typed(event) {
    event.stopPropagation();
    if (event.key === "Escape") /** @type {HTMLElement | null} */ (targetOf(event).closest("dialog"))?.focus();
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    this.run();
  }

  /** @param {string} prompt */
  pick(prompt) {
    this.box.value = prompt;
    this.run();
  }

  run() {
    const prompt = this.box.value.trim();
    if (!prompt || !this.recorded) return;
    this.leave();
    put(this.prompt, `“${prompt}”`);
    put(this.mark, SENTENCES.starting);
    this.mark.dataset.kind = "asking";
    this.ask(prompt);
    /** @type {HTMLElement | null} */ (this.box.closest("dialog"))?.focus();
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
   * report.begin: called with the lanes at the first token. report.draw: called once per frame. report.fail: called
   * with a sentence if the run failed or did not start.
   * @param {Omit<WayDetail, "kind">} way
   * @param {LiveReport} report
   */
  constructor(way, report) {
    this.report = report;
    this.view = /** @type {View} */ (LiveRun.view()); // exists if isPossible()
    this.before = this.view.run;
    const detail = { kind: "way", isKept: true, ...way };
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
    if (hasFailed) return this.fail(SENTENCES.failed);
    if (isLate) return this.fail(SENTENCES.late);
    if (isOurs && !this.hasBegun && run.lanes.length && run.lanes[0].tokens.length) {
      this.hasBegun = true;
      this.report.begin(run.lanes);
    }
    const isOver = this.hasBegun && run.lanes.every((lane) => lane.end);
    if (this.hasBegun) this.report.draw(isOver);
    if (!isOver) this.frame = requestAnimationFrame((next) => this.follow(next));
    return undefined;
  }

  /** @param {string} sentence */
  fail(sentence) {
    this.leave();
    this.report.fail(sentence);
  }

  // Stops following the run, and stops the run itself if it is still in progress.
  leave() {
    cancelAnimationFrame(this.frame);
    const { run } = this.view;
    const isOver = run && run !== this.before && run.lanes.every((lane) => lane.end);
    if (!isOver) document.getElementById("stop")?.click();
  }
}
