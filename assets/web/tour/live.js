// A run on the page behind the tour: fills in its controls, presses Run, follows its lanes. Knows the page by its ids.

import { enter } from "../core/dom.js";

const PATIENCE = 3000; // milliseconds without a first token after which the recording is shown instead
const LONGEST = 100; // that a frame may count: a browser that hangs does not say that the server does

/** @param {string} selector */
const input = (selector) => /** @type {HTMLInputElement | null} */ (document.querySelector(selector));

/**
 * @param {HTMLInputElement | null} box
 * @param {boolean} isOn
 */
function tick(box, isOn) {
  if (box && box.checked !== isOn) box.click();
}

export class LiveRun {
  /** @type {View} */
  view;
  /** @type {boolean} */
  hasBegun;
  /** @type {number} */
  timer;
  /** @type {number} */
  frame;

  // An exported page has no Run button, so nothing is offered there.
  static isPossible() {
    return Boolean(document.getElementById("run") && LiveRun.view());
  }

  // The recording beside it is of a first question, so this is none of the visitor's conversation.
  static press() {
    /** @type {() => void} */ (window.mars.runFirst)();
  }

  static view() {
    return document.querySelector("#race .mars-race")?.lineView;
  }

  /**
   * report: begin(lanes) at the first token, draw(isOver) once a frame, fail(sentence).
   * @param {string} prompt
   * @param {Settings} settings
   * @param {LiveReport} report
   */
  constructor(prompt, settings, report) {
    this.report = report;
    this.view = /** @type {View} */ (LiveRun.view()); // asked for where it is possible
    this.before = this.view.run;
    enter(input("#prompt textarea"), prompt);
    enter(input("#tau input[type=range]"), settings.tau);
    tick(input("#auto input"), false);
    enter(input("#block_size input[type=range]"), settings.block_size);
    tick(input("#lossless input"), settings.lossless);
    tick(input("#lookup input"), Boolean(settings.lookup));
    tick(input(`#groups input[value=${settings.groups || "one"}]`), true);
    this.waited = 0;
    this.frameBefore = performance.now();
    this.timer = setTimeout(LiveRun.press, 50); // once the page has taken the values in
    this.frame = requestAnimationFrame((now) => this.follow(now));
  }

  /** @param {number} now */
  follow(now) {
    this.waited += Math.min(LONGEST, now - this.frameBefore);
    this.frameBefore = now;
    const { run, root } = this.view;
    const isOurs = run && run !== this.before;
    const hasFailed = isOurs && (["error", "refused"].includes(root.dataset.state || "") || run.fault);
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

  // A run that nobody watches any more is stopped.
  leave() {
    clearTimeout(this.timer);
    cancelAnimationFrame(this.frame);
    const { run } = this.view;
    const isOver = run && run !== this.before && run.lanes.every((lane) => lane.end);
    if (!isOver) document.getElementById("stop")?.click();
  }
}
