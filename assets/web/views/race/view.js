// The race view: sends the received lines to the lanes, and draws the panes, figures, charts and the drawer at most
// once per frame. Everything is drawn for one position in the run (playhead.js).

import { Charts } from "../../charts/charts.js";
import { attribute, find, promptBox, put } from "../../core/dom.js";
import { headerOf, isFirst, mainLane } from "../../core/folds.js";
import { LineView, mountOf } from "../../core/line_view.js";
import { Playhead, secondsPerBeat } from "../../core/playhead.js";
import { STATUS } from "../../core/texts.js";
import { BRANCH_TITLE } from "../../core/table.js";
import { Lane } from "../../core/trace.js";
import { valueOf } from "../../core/wire.js";
import { joined } from "../../core/words.js";
import { setsControls } from "../../export/link.js";
import { runMenu } from "../../export/menu.js";
import { Asked } from "../../text/asked.js";
import { TextPane } from "../../text/pane.js";
import { pinOffer } from "../review/pins.js";
import { Drawer } from "./drawer.js";
import { Figures, Voice, buildLegend, statusOf } from "./figures.js";
import { Headline } from "./headline.js";
import { Player } from "./player.js";

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
  /** @type {Lane | null} */
  parent = null; // the lane from which the visitor branched last
  original = ""; // the value of the run from which the visitor branched
  hasMoved = false; // whether the displayed position has advanced by itself since it stopped last
  isByKey = false; // whether the visitor chooses tokens with the keyboard

  /** @param {ConstructorParameters<typeof LineView>} given */
  constructor(...given) {
    super(...given);
    const { root } = this;
    this.asked = new Asked(find(root, ".rv-asked"));
    this.figures = new Figures(root);
    this.panes = find(root, ".rv-panes");
    this.status = find(root, ".rv-status");
    this.note = find(root, ".rv-note");
    this.back = /** @type {HTMLButtonElement} */ (find(root, ".rv-back"));
    this.back.addEventListener("click", () => this.read(this.original));
    this.charts = new Charts(root, find(root, ".rv-charts"), (lane, pass) => this.choose(lane, pass));
    this.voice = new Voice(find(root, ".rv-live"));
    /** @type {TextMarks} */
    this.marks = "sources";
    buildLegend(find(root, ".rv-legend"), (isOn) => this.mark(isOn ? "passes" : "sources"), false);
    this.player = new Player(find(root, ".rv-player"), {
      moved: () => this.moved(),
      landed: () => this.drawFrame(),
      paced: () => this.paced(),
      picked: (lane, pass) => this.choose(lane, pass),
    });
    this.headline = new Headline(find(root, ".rv-headline"), () =>
      this.paneOf(mainLane(this.currentRun)).openDifference(),
    );
    this.isFresh = false; // whether nothing of the current run has been drawn yet
    this.opening = new Opening(this);
    this.drawer = new Drawer(find(root, ".rv-drawer"), asView(this));
    find(root, ".rv-top").append(
      runMenu(asView(this), (lane) => (this.canAsk("pin") ? [pinOffer(asView(this), lane)] : [])),
    );
    root.ownerDocument.addEventListener("keydown", (event) => this.key(event));
    this.watchTheme();
    this.clear();
  }

  /** @param {string} [sentence] */
  fail(sentence = STATUS.broken) {
    if (!this.run) this.start({ run: "unreadable", lanes: [] });
    this.currentRun.fault = sentence;
  }

  get isOver() {
    return !this.run || this.run.lanes.every((lane) => lane.end);
  }

  // A link that sets the prompt or the controls opens without the recording, which has others.
  /** @param {string} value */
  read(value) {
    const isOpening = this.root.dataset.opens === "true";
    if (!isOpening || !setsControls(location.search)) return super.read(value);
    this.root.dataset.opens = "";
    return undefined;
  }

  // The current run, for methods that are only called while there is one.
  get currentRun() {
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
    this.charts.show(null, null);
    this.draw();
  }

  /** @param {RaceHead} head */
  start(head) {
    this.selected = null;
    this.run = runOf(head, this.parent);
    this.playhead = new Playhead(this.run);
    this.player.show(this.playhead);
    this.isFresh = true;
    if (!head.recorded) this.player.land();
    /** @type {TextReport} */
    const report = {
      token: (text, index, how) => this.point(text, index, how),
      leave: () => this.point(null),
      choose: (lane, step, token) => this.choose(lane, step, token),
      marked: () => this.schedule(),
    };
    const { lanes } = this.run;
    const reference = lanes.find((lane) => lane.isAr) || lanes[0];
    // Of more than two lanes, each is compared with plain AR or the first lane.
    const againstOf = (/** @type {Lane} */ lane) =>
      lane !== reference ? reference : lanes.length === 2 ? lanes[1 - lanes.indexOf(lane)] : null;
    this.entries = [];
    for (const lane of lanes) {
      const comparedIn = lanes.length === 2 && lane.isAr ? this.entries[0] : null; // one pair of texts, one pair of buttons
      const options = { comparedIn, against: againstOf(lane), marks: this.marks, isFollowing: !head.recorded };
      this.entries.push(new TextPane(lane, report, options));
    }
    this.panes.replaceChildren(...this.entries.map((pane) => pane.element));
    this.panes.dataset.count = String(this.run.lanes.length);
    this.figures.build(this.run.lanes.length > 1);
    this.opening.meet(this.run);
    this.charts.show(this.run, this.playhead);
    this.schedule();
  }

  // The number of displayed passes of the main lane: all of them, or those up to the position in a replay.
  get at() {
    return this.run && this.run.lanes.length ? this.playhead.shown(mainLane(this.currentRun)) : 0;
  }

  /**
   * Returns a lane in its displayed state.
   * @param {Lane} lane
   */
  shown(lane) {
    return isFirst(lane) ? lane : lane.at(this.playhead.shown(lane));
  }

  /** @param {TextMarks} marks */
  mark(marks) {
    this.marks = marks;
    for (const pane of this.entries) pane.show(marks);
  }

  /**
   * Announces the token that the visitor reached with the keyboard.
   * @param {TokenView | null} text
   * @param {number} [index]
   * @param {string} [how]
   */
  point(text, index = -1, how = "") {
    this.isByKey = how === "keyboard";
    if (!text || !this.isByKey) return;
    const { lane, tokens } = text;
    put(this.voice.element, joined(lane.tokenName(lane.tokens[index].id), tokens[index].title));
  }

  /**
   * Chooses a pass, and optionally one of its tokens, by index: opens the drawer there, and moves the displayed
   * position forward to it if necessary. lane null: closes the drawer.
   * @param {Lane | null} lane
   * @param {number} [step]
   * @param {number} [token]
   */
  choose(lane, step = -1, token = -1) {
    const complete = lane && this.currentRun.lanes.find(({ name }) => name === lane.name); // `lane` may be cut
    this.selected = complete && complete.steps[step] ? { lane: complete, step, token } : null;
    for (const { lane: own, view } of this.entries) {
      view.choose(complete === own ? step : -1, complete === own ? token : -1);
      const same = complete === own ? undefined : view.tokens[token]; // the same place in the other texts
      if (same?.offsetParent) view.reveal(same);
    }
    if (complete && this.selected && step >= this.playhead.shown(complete)) this.playhead.seek(step + 1);
    this.schedule();
  }

  /**
   * Sends the page a request that the view cannot fulfil itself, such as a new run. Returns whether the page supports
   * the request (`mars.answers`).
   * @param {string} kind
   * @param {any} data
   */
  ask(kind, data) {
    if (!this.canAsk(kind)) return false;
    if (kind === "branch") {
      this.parent = data.lane;
      if (!this.currentRun.lanes.some(isFirst)) this.original = stoppedValue(this.currentRun);
    }
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
    const run = this.currentRun;
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
    if (this.isFresh && run?.lanes.length && !this.reader.lines.length) {
      this.isFresh = false;
      if (!this.playhead.isLive) this.playhead.drawn = Infinity; // a complete run is shown at once
    }
    const [state, sentence] = statusOf(run, this.playhead);
    attribute(root, {
      "data-run": run ? run.id : "",
      "data-state": state,
      "data-lanes": run ? run.lanes.length : 0,
      "data-steps": run && run.lanes.length ? mainLane(run).steps.length : 0,
    });
    put(this.status, this.opening.isDue ? "" : sentence); // the label says that it is a recording
    this.back.hidden = !(this.original && run?.lanes.some(isFirst));
    this.back.disabled = !this.isOver; // a run in progress would replace the original again
    put(this.note, run && run.note.kind === "note" ? run.note.text : "");
    this.asked.drawRun(run ? run.lanes : [], this.wanted, this.opening.recorded, this.controls);
    if (!run || !run.lanes.length) return this.drawer.draw();
    const main = mainLane(run);
    attribute(root, { "data-at": this.at });
    const { isHurried, isMoving, stillness } = this.player;
    const isBeat = isMoving && !isHurried && !stillness.matches;
    for (const pane of this.entries)
      pane.draw(this.shown(pane.lane), { isBeat, shownOther: pane.against && this.shown(pane.against) });
    const others = run.lanes.filter((lane) => lane !== main && !isFirst(lane)); // figures are not compared with the original run of a branch
    const other = others.find((lane) => lane.isAr) || others[0];
    const shownMain = this.shown(main);
    this.figures.update(shownMain, other && this.shown(other));
    this.headline.draw(
      shownMain,
      others.map((lane) => this.shown(lane)),
      Boolean(run.recorded),
    );
    this.player.draw();
    this.player.mark(this.selected);
    this.charts.draw(this.selected);
    this.drawer.draw();
    this.entries.forEach((pane) => pane.view.follow());
    this.showBeginnings();
    if (this.entries.some((pane) => !pane.view.isWhole)) this.schedule();
    const isHeard = this.root.contains(document.activeElement) && this.isByKey;
    if (!isHeard && !this.opening.isDue) this.voice.announce(state, sentence, this.shown(main), this.playhead);
  }

  // Shows the beginning of the texts after a run or a replay, unless the visitor has scrolled them.
  showBeginnings() {
    const { entries, isMoving, isOver, playhead } = this;
    if (isMoving) this.hasMoved = true;
    if (isMoving || !this.hasMoved || !entries.every(({ view }) => view.isWhole)) return;
    this.hasMoved = false;
    if (!isOver || !playhead.isAtEnd) return;
    for (const { view } of entries) if (view.isStuck) view.toTop();
  }

  // Slows the run of the page down, or stops slowing it down, so that about as many passes are made per second as the
  // player shows. A pause is a multiple of the time of a pass.
  paced() {
    const { run, player, root } = this;
    const beat = run ? secondsPerBeat(run.lanes) : 0;
    const pace = player.speed < Infinity && beat ? Math.max(0, 1 / (player.speed * beat) - 1) : 0;
    root.dispatchEvent(new CustomEvent("mars-pace", { bubbles: true, detail: Math.round(pace) }));
    this.schedule();
  }

  // Closes the drawer if its pass is no longer displayed, because the displayed position has changed.
  moved() {
    const { selected } = this;
    if (selected && selected.step >= this.playhead.shown(selected.lane)) this.choose(null);
    this.isByKey = false;
    this.schedule();
  }

  /**
   * Handles keys: Escape closes the drawer; other keys go to the player.
   * @param {KeyboardEvent} event
   */
  key(event) {
    if (!this.root.offsetParent || event.defaultPrevented) return;
    if (event.key !== "Escape" || !this.selected) return this.player.key(event);
    event.preventDefault();
    this.choose(null);
  }
}

export const mountRaceView = mountOf(RaceView);

// Handles the recording that the page shows when it is opened, and the label of recorded runs. It is played once, pass
// by pass, when it is loaded and visible, unless the visitor has changed the prompt, started a run or used the player.
class Opening {
  /** @param {RaceView} view */
  constructor(view) {
    this.view = view;
    this.isDue = false;
    this.isBegun = false;
    this.isInSight = false;
    this.isTouched = false;
    this.isFirst = false; // whether the run is the recording with which the page opens
    /** @type {string | null} */
    this.before = null; // text of the prompt box when the page was opened
    this.badge = find(view.root, ".rv-recorded");
    for (const kind of ["pointerdown", "keydown"])
      view.root.ownerDocument.addEventListener(kind, () => (this.isTouched = true), { once: true, capture: true });
  }

  /**
   * Labels the displayed run if it is a recording. Schedules the recording's playback if it is the first run on the
   * page and the system allows animations.
   * @param {Run} run
   */
  meet({ recorded, lanes }) {
    const { root, player, playhead, panes } = this.view;
    this.badge.hidden = !recorded;
    this.isFirst = Boolean(root.dataset.opens === "true" && recorded && lanes.length === 2);
    this.isBegun = false;
    this.isDue = this.isFirst && !player.stillness.matches;
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

  // The checkpoint of the recording with which the page opened if that is shown and the prompt box has another prompt,
  // as it had then; "" otherwise.
  get recorded() {
    const { run, wanted } = this.view;
    const header = this.isFirst && run?.recorded ? mainLane(run)?.header : null;
    if (!header || (wanted ?? promptBox()?.value) === header.prompt) return "";
    return wanted === null || wanted === this.before ? header.checkpoint : "";
  }

  // Starts the playback when it is due, and ends it when the visitor uses the page. Called at each draw.
  follow() {
    const { run, player, playhead, wanted } = this.view;
    if (!run?.lanes.length || !run.lanes.every((lane) => lane.header && lane.end)) return; // the run is in progress, or it was rejected
    const when = typeof run.recorded === "string" ? `recorded ${run.recorded.split(", on ")[0]}` : "recorded run";
    put(this.badge, `${headerOf(mainLane(run)).checkpoint}, ${when}`);
    if (!this.isTouched) this.before ??= wanted;
    if (!this.isDue) return;
    const isWanted = wanted === this.before;
    const isInterrupted = this.isBegun ? !player.isPlaying : !playhead.isAtStart;
    if (!isWanted) {
      player.isPlaying = false;
      playhead.seek(Infinity);
    }
    if (!isWanted || isInterrupted) this.isDue = false;
    else if (!this.isBegun && this.isInSight) this.begin();
  }

  begin() {
    this.isBegun = true;
    this.view.player.open();
  }
}

/**
 * Returns a run that has not received any trace line yet. The original run is shown next to a branch.
 * @param {RaceHead} head
 * @param {Lane | null} parent the lane from which the visitor branched last
 * @returns {Run}
 */
function runOf(head, parent) {
  const lanes = head.lanes.map((lane) => new Lane(lane));
  const isBranch = lanes.length === 1 && lanes[0].title === BRANCH_TITLE && !head.recorded;
  if (isBranch && parent) lanes.push(originalOf(parent));
  const { run, recorded, pace = 0 } = head;
  return { id: String(run), head, pace, note: { text: "", kind: "" }, fault: "", lanes, recorded };
}

const STOPPED = { reason: "cancelled", message: "" };

/**
 * Returns the value of a run that the next one replaces, so that it can be shown again.
 * @param {Run} run
 */
function stoppedValue({ head, lanes }) {
  const stop = JSON.stringify({ type: "end", ...STOPPED });
  const { run, recorded, lanes: names } = head;
  return valueOf(
    { run, recorded, lanes: names, pace: 0 },
    lanes.map(({ name, lines, verdict, end }) => ({ name, verdict, lines: end ? lines : [...lines, stop] })),
  );
}

/**
 * Returns a copy of a lane, as it is shown next to its branch.
 * @param {Lane} lane
 * @returns {Lane}
 */
const originalOf = (lane) =>
  Object.assign(Object.create(Lane.prototype), lane, {
    name: "first",
    title: "original run",
    end: lane.end ?? STOPPED,
  });
