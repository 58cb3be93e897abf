// A race in large type: its text grows pass by pass, by the recorded seconds (slowed down equally in all lanes), or as
// a live run sends it. If a live run fails or does not start, the recording replaces it, with a message. Two more
// scenes are such races: a dial for τ over recordings of one request, and the audience's own prompt.

import { button, make, put, targetOf } from "../core/dom.js";
import { LEGEND } from "../core/texts.js";
import { currentHeader } from "../core/former.js";
import { CLOCKS } from "../core/clocks.js";
import { divergence, folds, headerOf, lengthOf, numUntil } from "../core/folds.js";
import { afterLoop } from "../core/loops.js";
import { isSameText, passesText } from "../core/result.js";
import { laneSpeedup, speedClause } from "../core/speedup.js";
import { Lane } from "../core/trace.js";
import { capital, counted, figure, joined, probability, short, verdictText, whole } from "../core/words.js";
import { recording } from "../explain/explain.js";
import { slotRun } from "../explain/slots.js";
import { TauPicture } from "../explain/tau.js";
import { TokenView } from "../text/text.js";
import { SENTENCES } from "./stops.js";

const PLAYED_IN = 8; // seconds on the screen for the slowest lane of a recording
const SIZES = [2, 1.8, 1.6, 1.4, 1.2, 1.05, 0.95, 0.85];
const SCROLLED = 1.05; // size of a text that does not fit at any
const SILENT = { token() {}, leave() {}, choose() {} };

/**
 * Returns the first forward (from 1) that stopped after more than one token, or at all, because the model was not
 * confident.
 * @param {Step[]} steps
 */
function refusal(steps) {
  const refused = steps.filter((step) => step.stop === "threshold");
  const telling = refused.find((step) => step.count > 1) || refused[0];
  return telling ? telling.index + 1 : 1;
}

/**
 * Describes a finished live race: its passes and its speed.
 * @param {Lane} main
 * @param {Lane} other
 */
export function resultText(main, other) {
  const isSame = isSameText(main, other);
  const instead = isSame ? whole(folds.forwards(other)) : figure(folds.perForward(other));
  const speed = speedClause(laneSpeedup(main, other));
  return afterLoop([main, other], `${passesText(main, isSame)} instead of ${instead}${speed}.`);
}

/**
 * Returns the legend of what these lanes' texts are marked with.
 * @param {Lane[]} lanes
 */
function marksOf(lanes) {
  const sources = new Set(lanes.flatMap(({ steps }) => steps.flatMap((step) => step.sources)));
  /** @type {(className: string, text: string) => HTMLElement} */
  const item = (className, text) => make("span", "", make("span", `rv-swatch ${className}`, "text"), ` ${text}`);
  return [
    item("rv-by-ar", LEGEND.pass),
    item("rv-c rv-n3", SENTENCES.ahead),
    ...(sources.has("look-up") ? [item("rv-by rv-by-lookup", LEGEND.lookup)] : []),
  ];
}

class Column {
  /** @param {Lane} lane */
  constructor(lane) {
    this.lane = lane;
    this.text = make("div", "rv-text");
    this.passes = make("b");
    this.facts = make("span");
    this.more = ""; // further facts
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
    this.text.classList.toggle("pr-scrolled", this.text.scrollTop > 0);
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
  speed; // units of the clock per second on the screen
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
    const both = this.lanes.length > 1 ? ", both equally" : "";
    let pace = ", pass by pass";
    if (this.clock === CLOCKS.seconds) pace = slow > 1 ? `, slowed ${slow}×${both}` : "";
    this.note = `Recorded ${recorded.note}`;
    put(this.mark, `${note ? `${note} ` : ""}${this.note}${pace}.`);
    this.mark.dataset.kind = note ? "fallback" : "recorded";
    this.keys.replaceChildren(...marksOf(this.lanes));
    this.fit();
    this.draw();
  }

  // Finds the largest type at which the whole text of every lane fits.
  fit() {
    for (const column of this.columns) column.draw(column.lane);
    /** @param {number} size */
    const set = (size) => this.panes.style.setProperty("--fit", String(size));
    const size = SIZES.find((each) => {
      set(each);
      return this.columns.every(({ text }) => text.scrollHeight <= text.clientHeight + 1);
    });
    if (!size) set(SCROLLED);
  }

  /** @param {Lane[]} lanes */
  show(lanes) {
    this.columns = lanes.map((lane) => new Column(lane));
    this.panes.replaceChildren(...this.columns.map((column) => column.element));
    this.panes.dataset.count = String(lanes.length);
  }

  /**
   * Shows a beat: played from the current position, or at once (when going back, or with reduced motion).
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
    const isWhole = this.columns.every(({ view }) => view.isWhole); // a jump over many passes takes some frames
    if (!isWhole && this.panes.isConnected) requestAnimationFrame(() => this.draw());
  }

  /**
   * Shows the proposals of forward `number` (from 1) next to their text.
   * @param {number} number
   */
  explain(number) {
    if (this.why) this.why.remove();
    this.why = null;
    this.panes.classList.toggle("pr-has-why", Boolean(number));
    if (!number || !this.recorded) return;
    const { title, lines } = this.recorded.lanes[0];
    const run = slotRun(title, lines);
    const forward = run.forwards[Math.min(number, run.forwards.length) - 1];
    const picture = new TauPicture(run);
    const count = picture.show(forward.index, forward.tau);
    const refused = forward.predicted[count];
    const reason = refused
      ? ` “${run.lane.tokenName(refused.id)}” is at ${probability(refused.confidence)}, below τ ${short(forward.tau)}.`
      : "";
    this.why = make(
      "article",
      "pr-why",
      make("h3", "", `Pass ${forward.index + 1}: ${count} of ${forward.predicted.length} accepted`),
      picture.element,
      make("p", "pr-reason", `${reason} ${SENTENCES.rest}`.trim()),
    );
    this.panes.append(this.why);
  }

  get canLive() {
    return Boolean(this.recorded && this.spec.isLive && LiveRun.isPossible());
  }

  // Runs the recording's prompt and settings on the page.
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
   * Runs a prompt on the page with the recording's model and settings.
   * @param {string} prompt
   */
  ask(prompt) {
    const { lanes } = /** @type {Recording} */ (this.recorded);
    const { checkpoint, settings } = currentHeader(JSON.parse(lanes[0].lines[0]));
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

  // The displayed lanes, and whether they are recorded. A live run counts once it is over.
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

// One request at several τ, and lossless at the end: beats, or the presenter, turn the dial. The whole text is visible,
// with a mark where it first differs from AR's.
export class DialScene extends RaceScene {
  /**
   * @param {HTMLElement} element
   * @param {SceneSpec} spec
   */
  constructor(element, spec) {
    super(element, spec);
    this.places = (spec.recordings || []).flatMap((name) => recording(name) || []);
    this.beats = this.places.map(() => ({}));
    const most = Math.max(0, this.places.length - 1);
    this.slider = make("input", { type: "range", min: 0, max: most, step: 1, value: 0, "aria-label": "τ" });
    this.slider.addEventListener("input", () => this.turn(Number(this.slider.value)));
    this.name = make("output", "pr-dialname");
    element.insertBefore(make("div", "pr-dial", this.slider, this.name), this.panes);
    this.turn(0);
  }

  /** @param {number} place */
  turn(place) {
    if (!this.places[place]) return;
    this.stop();
    this.recorded = this.places[place];
    this.useRecording();
    this.slider.value = String(place);
    const [main, ar] = this.lanes;
    const { lossless, tau } = headerOf(main).settings;
    const words = lossless ? "lossless" : `τ ${short(tau)}, unverified`;
    put(this.name, words);
    this.slider.setAttribute("aria-valuetext", words);
    this.time = this.length;
    this.columns[0].hasTau = false; // the dial shows it
    this.draw();
    put(this.mark, `${this.note}.`);
    const parts = divergence(main, ar, 0);
    if (parts >= 0) for (const { view } of this.columns) view.markDivergence(parts);
    this.columns[0].more = parts < 0 ? SENTENCES.same : `differs at token ${parts + 1}`;
    this.columns[0].draw(main);
    for (const { text } of this.columns) text.scrollTop = 0; // where texts begin to differ
  }

  /** @param {number} index */
  beat(index) {
    this.turn(index);
  }
}

// A prompt from the audience: run live. A recording of another prompt is shown until then, and if the run fails.
export class AskScene extends RaceScene {
  /**
   * @param {HTMLElement} element
   * @param {SceneSpec} spec
   */
  constructor(element, spec) {
    super(element, spec);
    const given = { rows: 1, placeholder: SENTENCES.ask, "aria-label": SENTENCES.askName };
    this.box = make("textarea", given);
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
    this.fit(); // next to the box
    this.beat(0, false);
  }

  // This scene is a live run already.
  get canLive() {
    return false;
  }

  /**
   * Keeps keys that are typed in the box from the tour.
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
const LONGEST = 100; // milliseconds that a frame may count: a browser that hangs is not a server that hangs

// A run on the page behind the tour: requested like any view's, then its lanes are followed. The page stores the
// previous values of its controls and restores them when the tour is left.
class LiveRun {
  /** @type {boolean} */
  hasBegun;

  // An exported page has no Run button, so nothing is offered there.
  static isPossible() {
    return Boolean(document.getElementById("run") && LiveRun.view());
  }

  static view() {
    return document.querySelector("#race .mars-race")?.lineView;
  }

  /**
   * report: begin(lanes) at the first token; draw(isOver) once a frame; fail(sentence).
   * @param {Omit<WayDetail, "kind">} way
   * @param {LiveReport} report
   */
  constructor(way, report) {
    this.report = report;
    this.view = /** @type {View} */ (LiveRun.view()); // only requested where there is one
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

  // Stops a run that is no longer displayed.
  leave() {
    cancelAnimationFrame(this.frame);
    const { run } = this.view;
    const isOver = run && run !== this.before && run.lanes.every((lane) => lane.end);
    if (!isOver) document.getElementById("stop")?.click();
  }
}
