// What every view of lines has: it reads its value bit by bit, draws once a frame, follows the theme.

import { runColours } from "./colours.js";
import { find, put, watchTheme } from "./dom.js";
import { Feed } from "./wire.js";

const FRAME_BUDGET = 10; // milliseconds of parsing a frame; the rest waits for the next

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
    this.wanted = null; // the prompt in the page's box, where there is one
  }

  // What a view gives.

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

  recolour() {}

  /** @param {string | null} prompt null where the box is for something else */
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

  // Lets go of a refusal that shows no result; what was decoded stays.
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

  // Values overlap, but a page that was asleep for long has missed lines, and asks for all of the run.
  async catchUp() {
    if (this.isAsking) return;
    const { run } = this.feed;
    this.isAsking = true;
    const whole = await this.missed(run || "").catch(() => "");
    this.isAsking = false;
    if (this.feed.run !== run) return;
    if (whole) {
      this.take(whole);
      return this.read(this.latest); // it may be the last, and later than the whole
    }
    this.fail("Lines of this run were missed, and it is not known any more: run it again.");
    return this.schedule();
  }

  schedule() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.drawFrame());
  }

  // Reads what came and draws: for whoever is in a frame already, too, and need not ask for the next.
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

  // Colours change with the theme, and as runs are pinned.
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

// A view whose run is told by sentences: one is its state, and said aloud where it is no empty page and no run that goes on.
export class PhaseView extends LineView {
  static what = ""; // that cannot be drawn where a line is broken

  /** @param {ConstructorParameters<typeof LineView>} given */
  constructor(...given) {
    super(...given);
    this.live = find(this.root, ".rv-live");
    this.status = find(this.root, ".rv-phase");
  }

  /** @param {string} [text] */
  fail(text = `${/** @type {typeof PhaseView} */ (this.constructor).what} cannot be drawn: a line of it is broken.`) {
    this.say({ text, kind: "error" });
  }

  /** @param {Note} given */
  say({ text, kind }) {
    put(this.status, text);
    this.root.dataset.phase = kind;
    if (kind !== "empty" && kind !== "running") put(this.live, text);
  }
}

/**
 * What mounts such a view: called by a component's js_on_load, or by a page of its own. One view on one element, kept
 * there as `lineView`. server: what it may ask, functions by name; missed: run -> promise of the whole of it as one value,
 * "" where it is not known any more.
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
    return view;
  };
