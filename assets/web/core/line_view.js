// Base class of all views of lines: it parses its value in portions, draws once a frame and follows the theme.

import { runColours } from "./colours.js";
import { find, put, watchTheme } from "./dom.js";
import { STATUS } from "./texts.js";
import { Feed } from "./wire.js";

const FRAME_BUDGET = 10; // milliseconds of parsing per frame; the rest waits for the next

export class LineView {
  /**
   * @param {HTMLElement} root
   * @param {Server} server
   */
  constructor(root, server) {
    this.root = root;
    this.latest = "";
    this.isAsking = false;
    /** @type {number | null} */
    this.frame = null;
    this.server = server;
    this.missed = server.missed ?? (async () => "");
    this.feed = new Feed(this);
    /** @type {string | null} */
    this.wanted = null; // text of the page's prompt box, if there is one
  }

  // Methods of a subclass.

  /** @param {Head} _head */
  start(_head) {}

  /**
   * @param {string} _tag
   * @param {any} _data
   * @param {string} _text
   */
  line(_tag, _data, _text) {}

  clear() {}

  /** @param {string} [_sentence] */
  fail(_sentence) {}

  draw() {}

  // Whether the shown run has ended.
  get isOver() {
    return true;
  }

  recolour() {}

  /** @param {string | null} prompt null if the box is not for this result */
  want(prompt) {
    this.wanted = prompt;
    this.schedule();
  }

  /** @param {string} value */
  read(value) {
    this.latest = value;
    this.take(value);
    if (this.feed.isBehind) this.catchUp();
  }

  // Removes an error message that has no result; decoded content stays.
  dismiss() {
    if (this.root.dataset.state === "error" && this.root.dataset.steps === "0") this.read("");
  }

  /** @param {string} value */
  take(value) {
    try {
      this.feed.read(value);
    } catch {
      this.broken();
    }
    this.schedule();
  }

  // Values overlap, but a page that slept for long has missed lines and requests the whole run.
  async catchUp() {
    if (this.isAsking) return;
    const { run } = this.feed;
    this.isAsking = true;
    const whole = await this.missed(run || "").catch(() => "");
    this.isAsking = false;
    if (this.feed.run !== run) return;
    if (whole) {
      this.take(whole);
      return this.read(this.latest); // may be the last value, and newer than the whole
    }
    this.fail(STATUS.lost);
    return this.schedule();
  }

  schedule() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.drawFrame());
  }

  // Reads new lines and draws. Can also be called within a frame, which then needs no further one.
  drawFrame() {
    if (this.frame) cancelAnimationFrame(this.frame);
    this.frame = null;
    let isMore = false;
    try {
      isMore = this.feed.work(FRAME_BUDGET);
    } catch {
      this.broken();
    }
    this.draw();
    if (isMore) this.schedule();
  }

  broken() {
    this.feed.lines = [];
    this.fail();
  }

  // Colours change with the theme and when runs are pinned.
  watchTheme() {
    const changed = () => {
      if (!this.root.isConnected) return void runColours.listeners.delete(changed);
      this.recolour();
      return this.schedule();
    };
    runColours.listeners.add(changed);
    watchTheme(this.root, changed);
  }
}

// A view of a run with a status sentence and, above it, its finding in one sentence. The status defines the view's state
// and is announced to screen readers, except for an empty page, a running run and a recorded one. Until the visitor runs
// something, the view shows a recorded result, which it fetches when its tab is first opened.
export class PhaseView extends LineView {
  static what = ""; // what cannot be drawn if a line is malformed
  static empty = ""; // what Run does, where there is no recorded result

  /** @param {ConstructorParameters<typeof LineView>} given */
  constructor(...given) {
    super(...given);
    this.live = find(this.root, ".rv-live");
    this.status = find(this.root, ".rv-phase");
    this.finding = find(this.root, ".rv-finding");
  }

  // Shows the state before a run, then the recorded result.
  showOpening() {
    const { empty } = /** @type {typeof PhaseView} */ (this.constructor);
    this.say({ text: empty, kind: "empty" });
    void this.replay();
  }

  async replay() {
    const { recorded } = this.root.dataset;
    if (!recorded) return;
    const answer = await fetch(recorded).catch(() => null);
    const value = answer?.ok ? await answer.text() : "";
    if (this.feed.run === null) this.read(value);
  }

  /** @param {string} [text] */
  fail(
    text = `${/** @type {typeof PhaseView} */ (this.constructor).what} cannot be drawn because one of its lines is invalid. Run it again.`,
  ) {
    this.say({ text, kind: "error" });
  }

  get isOver() {
    return ["finished", "stopped", "error"].includes(this.root.dataset.phase || "");
  }

  /** @param {Note} given */
  say({ text, kind }) {
    const { recorded } = this.feed;
    this.root.dataset.phase = kind;
    this.root.dataset.recordedRun = String(Boolean(recorded));
    put(this.status, recorded && text ? `Recorded ${recorded}; Run replaces it. ${text}` : text);
    if (!recorded && kind !== "empty" && kind !== "running") put(this.live, text);
  }
}

/**
 * Returns the function that mounts such a view, for a component's js_on_load or a separate page. An element has one
 * view, as its property `lineView`. server: functions by name that the view may call. missed: returns a promise of a
 * whole run as one value, "" if it was dropped.
 * @param {new (...given: ConstructorParameters<typeof LineView>) => LineView} View
 */
export const mountOf =
  (View) =>
  /**
   * @param {HTMLElement} element
   * @param {{ value: string }} props
   * @param {(name: string, changed: () => void) => void} watch
   * @param {Server} [server]
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
