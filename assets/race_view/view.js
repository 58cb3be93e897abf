// The race view: binds the feed to lanes, panes, figures, charts, cards and panels; draws once a frame.
// One number says where a reader stands (playhead.js); everything is drawn for it.

import { counted } from "../common/bytes.js";
import { put } from "../common/dom.js";
import { LineView, mountView } from "../common/line_view.js";
import { Lane, compared, divergence, mainLane } from "../common/trace.js";
import { pinButton } from "../compare/pin.js";
import { runMenu } from "../export/menu.js";
import { Player } from "../player/player.js";
import { Asked } from "./asked.js";
import { Card } from "./card.js";
import { Charts } from "./charts.js";
import { Figures, buildLegend, statusOf } from "./figures.js";
import { Panels } from "./panels.js";
import { Pane } from "./panes.js";
import { Playhead } from "./playhead.js";

export class RaceView extends LineView {
  constructor(root, missed) {
    super(root, missed);
    this.run = null;
    this.selected = null; // { lane, step }: the forward that was chosen, by its index
    this.card = new Card(root.querySelector(".rv-card"), root);
    this.asked = new Asked(root.querySelector(".rv-asked"));
    this.figures = new Figures(root);
    this.panes = root.querySelector(".rv-panes");
    this.status = root.querySelector(".rv-status");
    this.note = root.querySelector(".rv-note");
    this.live = root.querySelector(".rv-live");
    this.charts = new Charts(root, { step: (...a) => this.pointedStep(...a), leave: () => this.left(), choose: (...a) => this.clicked(...a) });
    buildLegend(root.querySelector(".rv-legend"), (isOn) => this.panes.classList.toggle("rv-counts", isOn), true);
    this.panes.classList.add("rv-counts");
    this.player = new Player(root.querySelector(".rv-player"), () => this.moved());
    this.panels = new Panels(root.querySelector(".rv-panels"), this);
    root.querySelector(".rv-top").append(runMenu(this));
    root.addEventListener("keydown", (event) => this.key(event));
    this.watchTheme();
    this.clear();
  }

  fail(sentence = "This trace cannot be read: a line of it is broken.") {
    if (!this.run) this.start({ run: "unreadable", lanes: [] });
    this.run.fault = sentence;
  }

  clear() {
    this.run = null;
    this.selected = null;
    this.card.hide();
    this.entries = [];
    this.player.show(null);
    this.panes.replaceChildren();
    this.charts.show(null);
    this.draw();
  }

  start(head) {
    this.card.hide();
    this.selected = null;
    this.run = { id: String(head.run), head, pace: head.pace || 0, note: { text: "", kind: "" }, fault: "",
      lanes: head.lanes.map((l) => new Lane(l)), recorded: head.recorded, checked: 0, differs: -1 };
    this.playhead = new Playhead(this.run);
    this.player.show(this.playhead);
    const report = { token: (...a) => this.pointedToken(...a), leave: () => this.left(), choose: (...a) => this.choose(...a) };
    this.entries = this.run.lanes.map((lane) => new Pane(lane, !head.recorded, report));
    if (this.canAsk("pin")) for (const pane of this.entries) pane.head.append(pinButton(this, pane.lane));
    this.panes.replaceChildren(...this.entries.map((pane) => pane.element));
    this.panes.dataset.count = String(this.run.lanes.length);
    this.figures.build(this.run.lanes.length === 2);
    const badge = this.root.querySelector(".rv-recorded");
    badge.hidden = !head.recorded;
    badge.textContent = typeof head.recorded === "string" ? `recorded ${head.recorded}` : "recorded run";
    this.charts.show(this.run);
    this.schedule();
  }

  // How many forwards of the main lane are shown: all of them, or up to the place in a replay.
  get at() {
    return this.run && this.run.lanes.length ? this.playhead.shown(mainLane(this.run)) : 0;
  }

  // A lane as it is shown now.
  shown(lane) {
    return lane.at(this.playhead.shown(lane));
  }

  // The forward that panels speak of: the chosen one, else the last one shown. `step` is its index, -1 before the first.
  get focus() {
    const { selected } = this;
    if (selected && selected.step < this.playhead.shown(selected.lane)) return selected;
    const lane = mainLane(this.run);
    return { lane, step: this.playhead.shown(lane) - 1 };
  }

  // Chooses a forward (its index), and brings it into sight where a replay has not come to it; null lets go.
  choose(lane, step) {
    const found = lane && this.run.lanes.find((each) => each.name === lane.name);
    this.selected = found && found.steps[step] ? { lane: found, step } : null;
    for (const pane of this.entries) pane.view.choose(found === pane.lane ? step : -1);
    if (this.selected && step >= this.playhead.shown(found)) this.playhead.seek(found.steps[step].clock);
    this.schedule();
  }

  // Shows the run as it was right after this forward.
  goTo(lane, step) {
    const found = this.run.lanes.find((each) => each.name === lane.name);
    const index = Math.min(step, found.steps.length - 1);
    this.choose(null);
    this.player.isPlaying = false;
    this.playhead.seek(index < 0 ? 0 : found.steps[index].clock);
    this.schedule();
  }

  // Asks the page for what a trace cannot give; whether somebody answers. The page lists in window.marsAsk what it answers.
  ask(kind, data) {
    if (!this.canAsk(kind)) return false;
    this.root.dispatchEvent(new CustomEvent("mars-ask", { bubbles: true, detail: { kind, ...data } }));
    return true;
  }

  canAsk(kind) {
    return Array.isArray(window.marsAsk) && window.marsAsk.includes(kind);
  }

  line(target, data, text) {
    const { run } = this;
    if (target === "status") run.note = { text: data.text || "", kind: data.kind || "waiting" };
    else if (target === "pace") run.pace = data.pace || 0;
    else if (target === "verdict") run.lanes.filter((l) => l.name === data.lane).forEach((l) => { l.verdict = data.right; });
    else {
      const lane = run.lanes.find((l) => l.name === target);
      if (!lane) throw new Error(`No lane is called ${target}.`);
      lane.push(data, text);
    }
  }

  draw() {
    const { root, run } = this;
    const [state, sentence] = statusOf(run);
    root.dataset.run = run ? run.id : "";
    root.dataset.state = state;
    root.dataset.lanes = String(run ? run.lanes.length : 0);
    root.dataset.steps = String(run && run.lanes.length ? mainLane(run).steps.length : 0);
    put(this.status, sentence);
    put(this.note, run && run.note.kind === "note" ? run.note.text : "");
    this.asked.drawRun(run ? run.lanes : [], this.wanted);
    if (!run || !run.lanes.length) return;
    const main = mainLane(run);
    root.dataset.at = String(this.at);
    this.entries.forEach((pane) => pane.draw(this.shown(pane.lane)));
    this.compare();
    this.figures.update(this.shown(main), run.lanes.filter((lane) => lane !== main).map((lane) => this.shown(lane))[0]);
    this.player.draw();
    this.refreshCharts();
    this.panels.draw();
    this.entries.forEach((pane) => pane.view.follow());
    if (this.entries.some((pane) => !pane.view.isWhole)) this.schedule();
    this.say(state, sentence, this.shown(main));
  }

  // Charts are drawn again for new forwards, not for another place among them.
  refreshCharts() {
    const state = this.run.lanes.map((lane) => `${lane.steps.length}${lane.end ? "." : ""}`).join(" ");
    if (state !== this.charted) this.charts.refresh();
    this.charted = state;
    this.charts.place(this.playhead);
  }

  // The first difference between the two texts is marked in both.
  compare() {
    const { run } = this;
    if (run.lanes.length !== 2) return;
    if (run.differs < 0) run.differs = divergence(run.lanes[0], run.lanes[1], run.checked);
    run.checked = Math.min(...run.lanes.map((lane) => lane.tokens.length));
    const found = compared(run.lanes.map((lane) => this.shown(lane)), run.differs);
    for (const pane of this.entries) pane.compared(found);
  }

  // At most one polite sentence a second for screen readers.
  say(state, sentence, main) {
    const now = performance.now();
    const isOver = !["running", "slow", "waiting"].includes(state);
    if (this.root.contains(document.activeElement) && this.isPointing) return;
    if ((!isOver || !this.playhead.isFollowing) && now - (this.saidAt || 0) < 1000) return;
    this.saidAt = now;
    const step = main.steps[main.steps.length - 1];
    const running = step ? `Step ${main.steps.length}: ${counted(step.count, "token")} accepted, ${main.tokens.length} in all.` : sentence;
    put(this.live, isOver && this.playhead.isFollowing ? `${sentence} ${counted(main.tokens.length, "token")} in ${counted(main.steps.length, "forward")}.` : running);
  }

  pointedToken(view, index, anchor, how) {
    const { lane } = view;
    this.isPointing = how === "keyboard";
    this.card.token(lane, index, anchor);
    if (lane === mainLane(this.run)) this.charts.cursor(lane.tokens[index].step.index);
    if (how === "keyboard") put(this.live, this.card.element.innerText.replace(/\s+/g, " "));
  }

  pointedStep(lane, index, point) {
    const { view } = this.entries.find((pane) => pane.lane === lane);
    view.highlight(index);
    if (lane.end && index < this.playhead.shown(lane)) view.reveal(view.chunks[index]);
    this.charts.cursor(index);
    this.card.step(lane, index, point);
    this.lit = view;
  }

  // A forward chosen in a chart; its text takes the focus, so that the keyboard goes on from there.
  clicked(lane, index) {
    this.entries.find((pane) => pane.lane === lane).view.element.focus({ preventScroll: true });
    this.choose(lane, index);
  }

  left() {
    this.isPointing = false;
    this.card.hide();
    this.charts.cursor(-1);
    if (this.lit) this.lit.highlight(-1);
  }

  // The reader went to another place: what was chosen or pointed at elsewhere is let go.
  moved() {
    if (this.selected) this.choose(null);
    this.left();
    this.schedule();
  }

  // Escape lets go of the chosen forward before it does anything else.
  key(event) {
    if (event.key !== "Escape" || !this.selected || event.defaultPrevented) return this.player.key(event);
    event.preventDefault();
    return this.choose(null);
  }

  recolour() {
    this.charts.refresh();
    this.panels.recolour();
  }
}

export const mountRaceView = (...given) => mountView(RaceView, ...given);
