// The race view: sends the received lines to the lanes, and draws the panes, figures, charts and the drawer at most
// once per frame. Everything is drawn for one position in the run (playhead.js).

import { Charts } from "../../charts/charts.js";
import { CLOCKS } from "../../core/clocks.js";
import { attribute, button, find, make, put, toggle } from "../../core/dom.js";
import { headerOf, isFirst, mainLane, photoFinish } from "../../core/folds.js";
import { helpFor } from "../../core/help.js";
import { LineView, mountOf } from "../../core/line_view.js";
import { Playhead, passText } from "../../core/playhead.js";
import { store, stored } from "../../core/storage.js";
import { CLOCK, DENSITY, OPENING, STATUS } from "../../core/texts.js";
import { Lane } from "../../core/trace.js";
import { runMenu } from "../../export/menu.js";
import { Asked } from "../../text/asked.js";
import { TextPane } from "../../text/pane.js";
import { pinButton } from "../compare/pin.js";
import { Drawer } from "./drawer.js";
import { Figures, Voice, buildLegend, statusOf } from "./figures.js";
import { Headline } from "./headline.js";
import { Player } from "./player.js";
import { Pointing } from "./pointing.js";

/**
 * Returns the race view with the type View, in which `run` is never null: its parts are drawn only while there is a
 * run.
 * @param {RaceView} view
 */
const asView = (view) => /** @type {View} */ (/** @type {unknown} */ (view));

export class RaceView extends LineView {
  /** @type {Run | null} */
  run = null;
  /** @type {Focus | null} */
  selected = null; // the pass that the visitor chose, shown in the drawer
  /** @type {TextPane[]} */
  entries;
  /** @type {Playhead} */
  playhead;
  /** @type {string} */
  charted;

  /** @param {ConstructorParameters<typeof LineView>} given */
  constructor(...given) {
    super(...given);
    const { root } = this;
    this.asked = new Asked(find(root, ".rv-asked"));
    this.figures = new Figures(root);
    this.panes = find(root, ".rv-panes");
    this.status = find(root, ".rv-status");
    this.note = find(root, ".rv-note");
    this.charts = new Charts(root, {
      step: (lane, index) => this.pointing.step(lane, index),
      leave: () => this.pointing.leave(),
      choose: (lane, index) => this.pointing.choose(lane, index),
      zoom: () => this.zoomed(),
    });
    this.pointing = new Pointing(this);
    this.voice = new Voice(find(root, ".rv-live"));
    /** @type {TextMarks} */
    this.marks = "passes";
    buildLegend(find(root, ".rv-legend"), (isOn) => this.mark(isOn ? "passes" : "sources"), true);
    this.player = new Player(
      find(root, ".rv-player"),
      () => this.moved(),
      () => this.drawFrame(),
    );
    this.clock = root.dataset.opens ? CLOCKS.passes : CLOCKS.seconds; // passes in the Live tab and on separate pages
    this.clockSwitch = new ClockSwitch(find(root, ".rv-clock"), (clock) => this.goBy(clock));
    this.beat = new Beat(find(root, ".rv-beat"));
    this.headline = new Headline(find(root, ".rv-headline"));
    this.isFresh = false; // whether nothing of the current run has been drawn yet
    this.opening = new Opening(this);
    this.drawer = new Drawer(find(root, ".rv-drawer"), asView(this));
    find(root, ".rv-top").append(densitySwitch(root), runMenu(asView(this)));
    root.addEventListener("keydown", (event) => this.key(event));
    this.watchTheme();
    this.clear();
  }

  /** @param {string} [sentence] */
  fail(sentence = STATUS.broken) {
    if (!this.run) this.start({ run: "unreadable", lanes: [] });
    this.now.fault = sentence;
  }

  get isOver() {
    return !this.run || this.run.lanes.every((lane) => lane.end);
  }

  // The current run, for methods that are only called while there is one.
  get now() {
    return /** @type {Run} */ (this.run);
  }

  /**
   * @param {Lane} lane
   * @returns {TextPane}
   */
  paneOf(lane) {
    return /** @type {TextPane} */ (this.entries.find((pane) => pane.lane === lane));
  }

  clear() {
    this.run = null;
    this.selected = null;
    this.entries = [];
    this.player.show(null);
    this.panes.replaceChildren();
    this.charts.show(null, this.clock);
    this.draw();
  }

  /** @param {RaceHead} head */
  start(head) {
    this.selected = null;
    this.run = runOf(head);
    this.playhead = new Playhead(this.run, this.clock);
    this.player.show(this.playhead);
    this.isFresh = true;
    if (this.clock === CLOCKS.passes && !head.recorded) this.player.land();
    /** @type {TextReport} */
    const report = {
      token: (text, index, how) => this.pointing.token(text, index, how),
      leave: () => this.pointing.leave(),
      choose: (lane, step, token) => this.choose(lane, step, token),
    };
    const { lanes } = this.run;
    const reference = lanes.find((lane) => lane.isAr) || lanes[0];
    // The lanes of a branch differ by design. Of more than two lanes, each is compared with plain AR or the first lane.
    const againstOf = (/** @type {Lane} */ lane) =>
      lanes.some(isFirst)
        ? null
        : lane !== reference
          ? reference
          : lanes.length === 2
            ? lanes[1 - lanes.indexOf(lane)]
            : null;
    this.entries = lanes.map(
      (lane) =>
        new TextPane(lane, report, { against: againstOf(lane), marks: this.marks, isFollowing: !head.recorded }),
    );
    if (this.canAsk("pin")) for (const pane of this.entries) pane.head.append(pinButton(asView(this), pane.lane));
    this.panes.replaceChildren(...this.entries.map((pane) => pane.element));
    this.panes.dataset.count = String(this.run.lanes.length);
    this.figures.build(this.run.lanes.length > 1);
    this.opening.meet(this.run);
    this.charts.show(this.run, this.clock);
    this.schedule();
  }

  /**
   * Switches to another clock, for this run and later ones.
   * @param {Clock} clock
   */
  goBy(clock) {
    this.clock = clock;
    if (!this.run) return this.draw();
    this.player.isPlaying = false;
    this.playhead.goBy(clock);
    this.charts.show(this.run, clock);
    return this.moved();
  }

  // The number of displayed passes of the main lane: all of them, or those up to the position in a replay.
  get at() {
    return this.run && this.run.lanes.length ? this.playhead.shown(mainLane(this.now)) : 0;
  }

  /**
   * Returns a lane in its displayed state.
   * @param {Lane} lane
   */
  shown(lane) {
    return lane.at(this.playhead.shown(lane));
  }

  /** @param {TextMarks} marks */
  mark(marks) {
    this.marks = marks;
    for (const pane of this.entries) pane.show(marks);
  }

  // Whether the visitor chooses tokens with the keyboard.
  get isByKey() {
    return this.pointing.isByKey;
  }

  /**
   * Chooses a pass, and optionally one of its tokens, by index: opens the drawer there, and moves the displayed
   * position forward to it if necessary. lane null: closes the drawer.
   * @param {Lane | null} lane
   * @param {number} [step]
   * @param {number} [token]
   */
  choose(lane, step = -1, token = -1) {
    const complete = lane && this.now.lanes.find(({ name }) => name === lane.name); // `lane` may be cut
    this.selected = complete && complete.steps[step] ? { lane: complete, step, token } : null;
    for (const pane of this.entries)
      pane.view.choose(complete === pane.lane ? step : -1, complete === pane.lane ? token : -1);
    if (complete && this.selected && step >= this.playhead.shown(complete))
      this.playhead.seek(this.clock.end(complete.steps[step]));
    this.schedule();
  }

  /**
   * Sends the page a request that the view cannot fulfil itself, such as a new run. Returns whether the page supports
   * the request (`mars.answers`).
   * @param {string} kind
   * @param {object} data
   */
  ask(kind, data) {
    if (!this.canAsk(kind)) return false;
    this.root.dispatchEvent(new CustomEvent("mars-ask", { bubbles: true, detail: { kind, ...data } }));
    return true;
  }

  /** @param {string} kind */
  canAsk(kind) {
    return Boolean(window.mars.answers?.includes(kind));
  }

  /**
   * @param {string} target
   * @param {any} data
   * @param {string} text
   */
  line(target, data, text) {
    const run = this.now;
    if (target === "status") run.note = { text: data.text || "", kind: data.kind || "waiting" };
    else if (target === "pace") run.pace = data.pace || 0;
    else {
      const isVerdict = target === "verdict";
      const lane = run.lanes.find((l) => l.name === (isVerdict ? data.lane : target));
      if (!lane && !isVerdict) throw new Error(`The run has no lane ${target}.`);
      if (isVerdict) Object.assign(lane || {}, { verdict: data.right });
      else lane?.push(data, text);
    }
  }

  get isMoving() {
    return this.player.isMoving;
  }

  draw() {
    const { root, run } = this;
    this.opening.follow(); // may change the position, on which everything below depends
    const [state, sentence] = statusOf(run, this.playhead);
    attribute(root, {
      "data-run": run ? run.id : "",
      "data-state": state,
      "data-lanes": run ? run.lanes.length : 0,
      "data-steps": run && run.lanes.length ? mainLane(run).steps.length : 0,
      "data-clock": this.clock.name,
    });
    this.clockSwitch.draw(this.clock);
    put(this.status, this.opening.sentence || sentence);
    put(this.note, run && run.note.kind === "note" ? run.note.text : "");
    this.asked.drawRun(run ? run.lanes : [], this.wanted);
    if (!run || !run.lanes.length) return this.drawer.draw();
    const main = mainLane(run);
    if (this.isFresh && !this.feed.lines.length) {
      this.isFresh = false;
      if (!this.playhead.isLive) this.playhead.drawn = Infinity; // a complete run is shown at once
    }
    attribute(root, { "data-at": this.at });
    const { isHurried, isMoving, stillness } = this.player;
    const isBeat = this.clock === CLOCKS.passes && isMoving && !isHurried && !stillness.matches;
    for (const pane of this.entries)
      pane.draw(this.shown(pane.lane), { isBeat, shownOther: pane.against && this.shown(pane.against) });
    const comparison = run.lanes.length === 2 ? this.entries[0].comparison : null;
    const others = run.lanes.filter((lane) => lane !== main);
    const other = others.find((lane) => lane.isAr) || others[0];
    const shownMain = this.shown(main);
    this.figures.update(shownMain, other && this.shown(other));
    this.headline.draw(
      shownMain,
      others.map((lane) => this.shown(lane)),
      comparison,
    );
    if (this.clock === CLOCKS.passes) this.beat.draw(this.playhead);
    this.drawAxis();
    this.refreshCharts();
    this.drawer.draw();
    this.entries.forEach((pane) => pane.view.follow());
    if (this.entries.some((pane) => !pane.view.isWhole)) this.schedule();
    const isHeard = this.root.contains(document.activeElement) && this.pointing.isByKey;
    if (!isHeard && !this.opening.sentence) this.voice.say(state, sentence, this.shown(main), this.playhead);
  }

  // Shows the zoom, which the charts store, and the chosen pass in the charts, on the scrubber and in the texts. Also
  // marks the slower lane's position at the time when the faster lane ended.
  drawAxis() {
    const { charts, entries, now, player, selected } = this;
    const { zoom } = charts;
    const { clock } = this;
    const finish = photoFinish(now.lanes, clock);
    charts.select(selected);
    for (const { lane, view: text } of entries) {
      text.range.draw(zoom, clock);
      if (finish && lane === finish.other) text.range.finish(finish, clock);
    }
    const chosen = selected && selected.lane.steps[selected.step];
    player.mark("zoom", zoom);
    player.mark("chosen", chosen && { from: clock.begin(chosen), to: clock.end(chosen) });
    player.mark("finish", finish && { from: finish.time, to: finish.time });
    player.draw();
  }

  zoomed() {
    for (const { view } of this.entries) view.range.reveal(this.charts.zoom, this.clock);
    this.schedule();
  }

  // Redraws the charts if there are new passes. A change of position only moves their position marker.
  refreshCharts() {
    const state = this.now.lanes.map((lane) => `${lane.steps.length}${lane.end ? "." : ""}`).join(" ");
    if (state !== this.charted) this.charts.refresh();
    this.charted = state;
    this.charts.place(this.playhead);
  }

  // Closes the drawer if its pass is no longer displayed, because the displayed position has changed.
  moved() {
    const { selected } = this;
    if (selected && selected.step >= this.playhead.shown(selected.lane)) this.choose(null);
    this.pointing.leave();
    this.schedule();
  }

  /**
   * Handles keys: Escape closes the drawer; other keys go to the player.
   * @param {KeyboardEvent} event
   */
  key(event) {
    if (event.key !== "Escape" || !this.selected || event.defaultPrevented) return this.player.key(event);
    event.preventDefault();
    return this.choose(null);
  }

  recolour() {
    this.charts.refresh();
  }
}

export const mountRaceView = mountOf(RaceView);

// The two buttons that choose the clock (passes or seconds) by which the lanes are drawn.
class ClockSwitch {
  /**
   * @param {HTMLElement} element
   * @param {(clock: Clock) => void} chosen
   */
  constructor(element, chosen) {
    attribute(element, { role: "group", "aria-label": CLOCK.name });
    this.buttons = Object.values(CLOCKS).map((clock) => {
      const [name, title] = CLOCK[clock.name];
      return { clock, node: button({ title }, name, () => chosen(clock)) };
    });
    element.replaceChildren(...this.buttons.map(({ node }) => node));
    element.after(helpFor("clock"));
  }

  /** @param {Clock} current */
  draw(current) {
    for (const { clock, node } of this.buttons) attribute(node, { "aria-pressed": clock === current });
  }
}

// A dot that pulses with each pass, and the pass's number.
class Beat {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.dot = make("i", { class: "rv-dot", "aria-hidden": true });
    this.pass = make("b", "rv-num");
    this.says = make("span");
    element.replaceChildren(this.dot, this.pass, this.says);
  }

  /** @param {Playhead} playhead */
  draw(playhead) {
    const [pass, remark] = passText(playhead);
    this.dot.dataset.tick = String(Math.floor(playhead.now) % 2); // alternates between two equal animations, to restart it at each pass
    put(this.pass, pass);
    put(this.says, remark);
  }
}

// Handles the recording that the page shows when it is opened, and the label of recorded runs. The recording is played
// once, pass by pass, when it is loaded and visible, unless the visitor has changed the prompt, started a run or used
// the player.
class Opening {
  /** @param {RaceView} view */
  constructor(view) {
    this.view = view;
    this.isDue = false;
    this.isBegun = false;
    this.isInSight = false;
    this.badge = find(view.root, ".rv-recorded");
  }

  /**
   * Labels the displayed run if it is a recording. Schedules the recording's playback if it is the first run on the
   * page and the system allows animations.
   * @param {Run} run
   */
  meet({ recorded, lanes }) {
    const { root, player, playhead, panes } = this.view;
    this.badge.hidden = !recorded;
    this.badge.textContent = typeof recorded === "string" ? `recorded ${recorded.split(", on ")[0]}` : "recorded run";
    const isFirst = Boolean(root.dataset.opens === "true" && recorded && lanes.length === 2);
    this.isBegun = false;
    this.isDue = isFirst && !player.stillness.matches;
    root.dataset.opens = "";
    if (!this.isDue) return;
    playhead.hold();
    new IntersectionObserver((entries, observer) => {
      if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
      observer.disconnect();
      this.isInSight = true;
      this.view.schedule();
    }).observe(panes);
  }

  // The status sentence while the recording is played; "" otherwise.
  get sentence() {
    return this.isDue ? OPENING : "";
  }

  // Starts the playback when it is due, and ends it when the visitor uses the page. Called at each draw.
  follow() {
    const { run, player, playhead, wanted } = this.view;
    if (!run?.lanes.length || !run.lanes.every((lane) => lane.header && lane.end)) return; // the run is in progress, or it was rejected
    if (!this.isDue) return;
    const isWanted = wanted === null || wanted === headerOf(mainLane(run)).prompt;
    const isInterrupted = this.isBegun ? !player.isPlaying : !playhead.isAtStart;
    if (!isWanted) {
      player.isPlaying = false;
      playhead.seek(Infinity);
    }
    if (!isWanted || isInterrupted || playhead.clock !== CLOCKS.passes) this.isDue = false;
    else if (!this.isBegun && this.isInSight) this.begin();
  }

  begin() {
    this.isBegun = true;
    this.view.player.toggle();
  }
}

const COMPACT = "mars-compact";

/**
 * Returns a button that switches between comfortable and compact text; the browser stores the choice.
 * @param {HTMLElement} root
 */
function densitySwitch(root) {
  /** @param {boolean} isCompact */
  const set = (isCompact) => {
    root.dataset.density = isCompact ? "compact" : "comfortable";
  };
  const isCompact = stored("localStorage", COMPACT) === "true";
  set(isCompact);
  const node = toggle(DENSITY.text, isCompact, (isOn) => {
    set(isOn);
    store("localStorage", COMPACT, String(isOn));
  });
  attribute(node, { class: "rv-density", title: DENSITY.hint });
  return node;
}

/**
 * Returns a run that has not received any trace line yet.
 * @param {RaceHead} head
 * @returns {Run}
 */
const runOf = (head) => ({
  id: String(head.run),
  head,
  pace: head.pace || 0,
  note: { text: "", kind: "" },
  fault: "",
  lanes: head.lanes.map((lane) => new Lane(lane)),
  recorded: head.recorded,
});
