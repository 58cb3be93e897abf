// Base class of the views that receive their content as lines of text (format: core/wire.js). A view parses the lines
// in portions, draws at most once per animation frame, and redraws when the theme changes.

import { find, put, watchTheme } from "./dom.js";
import { STATUS } from "./texts.js";
import { parted } from "./wire.js";

const FRAME_BUDGET = 10; // milliseconds of parsing per frame; remaining lines wait for the next frame

// Reads the values of a run, which grow or overlap, and passes each of its lines to the sink once.
export class LogReader {
  /** @type {string | null} */
  run = null;
  /** @type {string[]} */
  lines = []; // read, but not passed on yet
  /** @type {string | null} */
  head = null;
  isBehind = false; // whether lines between the last value and this one are missing
  /** @type {boolean | string} */
  recorded = false; // when and on what the run was recorded; false for a live one
  begin = 0; // number, within the run, of the value's first line
  taken = 0; // number of lines of the run that were read

  /** @param {Sink} sink */
  constructor(sink) {
    this.sink = sink;
  }

  /**
   * Reads the new lines of a value. A line is read only once its newline has arrived, so a value may be cut anywhere.
   * @param {unknown} value
   */
  read(value) {
    const text = typeof value === "string" ? value : "";
    const [head, ...lines] = text.split("\n").slice(0, -1);
    if (head === undefined) {
      if (this.run !== null && text === "") this.reset(null);
      return;
    }
    if (head !== this.head) this.readHead(head);
    this.isBehind = this.begin > this.taken;
    if (this.isBehind) return;
    const fresh = lines.slice(this.taken - this.begin);
    for (const line of fresh) this.lines.push(line);
    this.taken += fresh.length;
  }

  /** Handles a new first line, which begins another run or another part of the same run. @param {string} head */
  readHead(head) {
    const parsed = JSON.parse(head);
    this.head = head;
    this.begin = parsed.from || 0;
    if (parsed.run !== this.run) this.reset(parsed);
  }

  /** @param {Head | null} parsed */
  reset(parsed) {
    this.run = parsed && parsed.run;
    this.recorded = parsed?.recorded ?? false;
    if (!parsed) this.head = null;
    this.taken = 0;
    this.lines = [];
    if (parsed) this.sink.start(parsed);
    else this.sink.clear();
  }

  /**
   * Passes waiting lines to the sink for at most `budget` milliseconds. Returns whether lines are left for the next
   * frame.
   * @param {number} budget
   */
  work(budget) {
    const until = performance.now() + budget;
    let count = 0;
    while (count < this.lines.length && performance.now() < until) {
      const [tag, text] = parted(this.lines[count]);
      count += 1;
      this.sink.line(tag, JSON.parse(text), text);
    }
    this.lines.splice(0, count);
    return this.lines.length > 0;
  }
}

/**
 * Returns the error of an invalid control if a value is one; the view then keeps its run.
 * @param {string} value @returns {Refusal | undefined}
 */
const refusalIn = (value) => (value.startsWith("{") ? JSON.parse(value.split("\n", 1)[0]).refused : undefined);

export class LineView {
  /** @param {HTMLElement} root @param {Server} server */
  constructor(root, server) {
    this.root = root;
    this.latest = "";
    this.isAsking = false;
    /** @type {number | null} */
    this.frame = null;
    this.server = server;
    this.missed = server.missed ?? (async () => "");
    this.reader = new LogReader(this);
    /** @type {string | null} */
    this.wanted = null; // text of the page's prompt box, if there is one
    /** @type {Record<string, any> | null} */
    this.controls = null; // values of the page's controls, by the names of settings
  }

  // The methods that a subclass overrides, from `start` to `recolour`.

  /** @param {Head} _head */
  start(_head) {}

  /** @param {string} _tag @param {any} _data @param {string} _text */
  line(_tag, _data, _text) {}

  clear() {}

  /** @param {string} [_sentence] */
  fail(_sentence) {}

  draw() {}

  get isOver() {
    return true;
  }

  recolour() {}

  /**
   * @param {string | null} prompt text of the prompt box; null if the box does not belong to this result
   * @param {Record<string, any> | null} [controls]
   */
  want(prompt, controls = this.controls) {
    this.wanted = prompt;
    this.controls = controls;
    this.schedule();
  }

  /** @param {string} value */
  read(value) {
    const refused = refusalIn(value);
    if (refused)
      return void this.root.dispatchEvent(new CustomEvent("mars-refused", { bubbles: true, detail: refused }));
    this.latest = value;
    this.parse(value);
    if (this.reader.isBehind) this.catchUp();
  }

  // Removes the error message of a run that has no steps. If a run failed after some steps, its message and partial
  // result remain.
  dismiss() {
    if (this.root.dataset.state === "error" && this.root.dataset.steps === "0") this.read("");
  }

  /** @param {string} value */
  parse(value) {
    try {
      this.reader.read(value);
    } catch {
      this.broken();
    }
    this.schedule();
  }

  // Requests the whole run from the server after lines were missed. Consecutive values repeat some lines, but a page
  // that was suspended for a long time can miss more lines than that.
  async catchUp() {
    if (this.isAsking) return;
    const { run } = this.reader;
    this.isAsking = true;
    const whole = await this.missed(run || "").catch(() => "");
    this.isAsking = false;
    if (this.reader.run !== run) return;
    if (whole) {
      this.parse(whole);
      return this.read(this.latest); // may be newer than the server's answer, and the last value of the run
    }
    this.fail(STATUS.lost);
    return this.schedule();
  }

  schedule() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.drawFrame());
  }

  // Parses new lines and draws. Replaces a scheduled frame if it is called directly.
  drawFrame() {
    if (this.frame) cancelAnimationFrame(this.frame);
    this.frame = null;
    let isMore = false;
    try {
      isMore = this.reader.work(FRAME_BUDGET);
    } catch {
      this.broken();
    }
    this.draw();
    if (isMore) this.schedule();
  }

  broken() {
    this.reader.lines = [];
    this.fail();
  }

  // Redraws the view when the theme changes.
  watchTheme() {
    watchTheme(this.root, () => {
      this.recolour();
      this.schedule();
    });
  }
}

// A view of a run with a status sentence and, above it, the run's result in one sentence (the finding). The status sets
// the view's state. Screen readers announce the status, except for an empty page, a run in progress and a recorded run.
// Until the visitor runs something, the view shows a recorded result, which it fetches when its tab is first opened.
export class PhaseView extends LineView {
  static what = ""; // begins the error message for a malformed line: "<what> cannot be drawn because ..."
  static empty = ""; // status before the first run
  isHeld = false;

  /** @param {ConstructorParameters<typeof LineView>} given */
  constructor(...given) {
    super(...given);
    this.live = find(this.root, ".rv-live");
    this.status = find(this.root, ".rv-phase");
    this.finding = find(this.root, ".rv-finding");
    const figures = /** @type {NodeListOf<HTMLElement>} */ (this.root.querySelectorAll(".rv-figures"));
    this.held = [this.finding, this.status, ...figures];
  }

  // Shows the state before a run, then the recorded result.
  showOpening() {
    const { empty } = /** @type {typeof PhaseView} */ (this.constructor);
    this.showStatus({ text: empty, kind: "empty" });
    void this.replay();
  }

  async replay() {
    const { recorded } = this.root.dataset;
    if (!recorded) return;
    const answer = await fetch(recorded).catch(() => null);
    const value = answer?.ok ? await answer.text() : "";
    if (this.reader.run === null) this.read(value);
  }

  /** @param {string} [text] */
  fail(
    text = `${/** @type {typeof PhaseView} */ (this.constructor).what} cannot be drawn because one of its lines is invalid. Run it again.`,
  ) {
    this.showStatus({ text, kind: "error" });
  }

  get isOver() {
    return ["finished", "stopped", "error"].includes(this.root.dataset.phase || "");
  }

  /**
   * Keeps the finding, the status and the figures at least as high as they are now, so that shorter sentences during a
   * run do not move the content below; false removes this limit.
   * @param {boolean} isHeld
   */
  hold(isHeld) {
    if (isHeld === this.isHeld) return;
    this.isHeld = isHeld;
    for (const node of this.held) node.style.minHeight = isHeld ? `${node.offsetHeight}px` : "";
  }

  /** Shows the finding or, if it is empty, the heading of the run. @param {string} finding */
  showFinding(finding) {
    put(this.finding, finding || this.heading);
  }

  // The heading that is shown until there is a finding. A subclass returns a heading that names what the run compares.
  get heading() {
    return "";
  }

  // Shows the status at the start of a run, before the run's first line.
  /** @param {Head} head */
  begin({ run, recorded }) {
    this.showStatus({ text: run && !recorded ? STATUS.starting : "", kind: "waiting" });
  }

  /** @param {Note} note */
  showStatus({ text: given, kind }) {
    const { recorded } = this.reader;
    const text = recorded && (kind === "waiting" || kind === "running") ? STATUS.playing : given;
    this.hold(kind === "waiting" || kind === "running");
    this.root.dataset.phase = kind;
    this.root.dataset.recordedRun = String(Boolean(recorded));
    put(this.status, recorded && text ? `Recorded ${recorded}; press Run to replace it. ${text}` : text);
    if (!recorded && kind !== "empty" && kind !== "running") put(this.live, text);
  }
}

/**
 * Returns the function that mounts a view of this class, in a component's js_on_load or on a separate page. The view is
 * stored as the property `lineView` of its element. server: the server functions that the view may call, by name.
 * server.missed: returns a promise of a whole run as one value, or of "" if the server no longer has the run.
 * @param {new (...given: ConstructorParameters<typeof LineView>) => LineView} View
 */
export const mountOf =
  (View) =>
  /**
   * @param {HTMLElement} element @param {{ value: string }} props
   * @param {(name: string, changed: () => void) => void} watch @param {Server} [server]
   */
  (element, props, watch, server = {}) => {
    const root = find(element, ".mars-race");
    const view = new View(root, server);
    root.lineView = view;
    watch("value", () => view.read(props.value));
    view.read(props.value);
    root.dispatchEvent(new CustomEvent("mars-mount", { bubbles: true }));
    return view;
  };
