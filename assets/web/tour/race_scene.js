// A race in large type: its text grows pass by pass, by the recorded seconds (slowed down equally in all lanes), or as
// a live run sends it. If a live run fails or does not start, the recording replaces it, with a message. Two more
// scenes are such races: a dial for τ over recordings of one request, and the audience's own prompt.

import { button, make, put, targetOf } from "../core/dom.js";
import { CLOCKS } from "../core/clocks.js";
import { divergence, folds, headerOf, lengthOf, numUntil } from "../core/folds.js";
import { afterLoop } from "../core/loops.js";
import { laneSpeedup, speedupSentence } from "../core/speedup.js";
import { Lane } from "../core/trace.js";
import { counted, joined, probability, short, verdictText } from "../core/words.js";
import { recording } from "../explain/explain.js";
import { slotRun } from "../explain/slots.js";
import { TauPicture } from "../explain/tau.js";
import { TokenView } from "../text/text.js";

const PLAYED_IN = 8; // seconds on the screen for the slowest lane of a recording
const SIZES = [2, 1.8, 1.6, 1.4, 1.2, 1.05, 0.9, 0.75, 0.65];
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

class Column {
  /** @param {Lane} lane */
  constructor(lane) {
    this.lane = lane;
    this.text = make("div", "rv-text");
    this.count = make("p", "pr-count");
    this.element = make("article", "pr-lane", make("h3", "", lane.title), this.text, this.count);
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
    const tau = !this.lane.isAr && shown.settings && !shown.settings.lossless ? `τ ${short(shown.settings.tau)}` : "";
    const counts = afterLoop([shown], `${counted(tokens, "token")} in ${counted(forwards, "forward")}`);
    put(this.count, joined(counts, tau, done));
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
    element.append(this.prompt, this.panes, this.mark);
    this.beats = (this.recorded && spec.beats) || [];
    if (this.recorded) this.useRecording();
    else put(this.mark, "The recording of this stop did not come with the page.");
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
    let pace = `, one pass at a time${both}`;
    if (this.clock === CLOCKS.seconds) pace = slow > 1 ? `, slowed ${slow}×${both}` : "";
    this.note = `Recorded ${recorded.note}`;
    put(this.mark, `${note ? `${note} ` : ""}${this.note}${pace}.`);
    this.mark.dataset.kind = note ? "fallback" : "recorded";
    this.fit();
    this.draw();
  }

  // Finds the largest type at which the whole text of every lane fits.
  fit() {
    for (const column of this.columns) column.draw(column.lane);
    for (const size of SIZES) {
      this.panes.style.setProperty("--fit", String(size));
      if (this.columns.every(({ text }) => text.scrollHeight <= text.clientHeight + 1)) break;
    }
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
      column.draw(isOver ? lane : lane.at(count));
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
      make("h3", "", `Forward ${forward.index + 1}: ${count} of ${forward.predicted.length} taken`),
      picture.element,
      make("p", "pr-reason", `${reason} What follows is asked again, from the real text.`.trim()),
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
    put(this.mark, "Asking the page to run it…");
    this.mark.dataset.kind = "asking";
    this.ask(recorded.prompt);
  }

  /**
   * Runs a prompt on the page with the recording's model and settings.
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

  // The displayed lanes, and whether they are recorded.
  get told() {
    return {
      lanes: this.columns?.map((column) => column.lane) || [],
      note: this.live ? "Run live, just now" : this.note,
    };
  }

  get model() {
    const [lane] = this.told.lanes;
    return lane?.header ? headerOf(lane).checkpoint : "";
  }

  /** @param {boolean} isOver */
  drawLive(isOver) {
    for (const column of this.columns) column.draw(column.lane);
    const [main, other] = this.columns.map((column) => column.lane);
    const speed = other && main.end && other.end ? `${main.title}: ${speedupSentence(laneSpeedup(main, other))}.` : "";
    put(this.mark, `Live, on this server. ${speed && afterLoop([main, other], speed)}`.trim());
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
    this.draw();
    put(this.mark, `${this.note}.`);
    const parts = divergence(main, ar, 0);
    if (parts >= 0) for (const { view } of this.columns) view.markDivergence(parts);
    const said = parts < 0 ? "the same text" : `not AR’s text from token ${parts + 1} on`;
    put(this.columns[0].count, joined(this.columns[0].count.textContent || "", said));
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
    const given = { rows: 1, placeholder: "Type a prompt and press Enter", "aria-label": "Prompt of the audience" };
    this.box = make("textarea", given);
    this.box.addEventListener("keydown", (event) => this.typed(event));
    const form = make(
      "div",
      "pr-ask",
      this.box,
      button("", "Run", () => this.run()),
    );
    if (LiveRun.isPossible()) element.insertBefore(form, this.prompt);
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

  run() {
    const prompt = this.box.value.trim();
    if (!prompt || !this.recorded) return;
    this.leave();
    put(this.prompt, `“${prompt}”`);
    put(this.mark, "Asking the page to run it…");
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
    if (hasFailed) return this.fail("The live run failed, so this is a recording.");
    if (isLate) return this.fail("The live run did not begin within three seconds, so this is a recording.");
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
