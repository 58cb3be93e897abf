// The race view: binds the feed to lanes, panes, figures, charts and cards; draws once a frame.

import { whole } from "../common/bytes.js";
import { make, put } from "../common/dom.js";
import { Card, settingsText } from "./card.js";
import { Charts, mainLane } from "./charts.js";
import { LineView, mountView } from "../common/line_view.js";
import { Figures, buildLegend, statusOf } from "./figures.js";
import { TokenView } from "./text.js";
import { Lane, divergence } from "../common/trace.js";

export class RaceView extends LineView {
  constructor(root) {
    super(root);
    this.run = null;
    this.card = new Card(root.querySelector(".rv-card"), root);
    this.figures = new Figures(root);
    this.panes = root.querySelector(".rv-panes");
    this.status = root.querySelector(".rv-status");
    this.note = root.querySelector(".rv-note");
    this.live = root.querySelector(".rv-live");
    this.charts = new Charts(root, { step: (...a) => this.pointedStep(...a), leave: () => this.left() });
    buildLegend(root.querySelector(".rv-legend"), (isOn) => this.panes.classList.toggle("rv-counts", isOn), true);
    this.panes.classList.add("rv-counts");
    this.watchTheme();
    this.clear();
  }

  fail() {
    if (!this.run) this.start({ run: "unreadable", lanes: [] });
    this.run.fault = "This trace cannot be read: a line of it is broken.";
  }

  clear() {
    this.run = null;
    this.card.hide();
    this.panes.replaceChildren();
    this.charts.show(null);
    this.draw();
  }

  start(head) {
    this.card.hide();
    this.run = { id: String(head.run), pace: head.pace || 0, note: { text: "", kind: "" }, fault: "", lanes: head.lanes.map((l) => new Lane(l)),
      recorded: head.recorded, checked: 0, differs: -1, views: [] };
    this.panes.replaceChildren(...this.run.lanes.map((lane) => this.pane(lane)));
    this.panes.dataset.count = String(this.run.lanes.length);
    this.figures.build(this.run.lanes.length === 2);
    const badge = this.root.querySelector(".rv-recorded");
    badge.hidden = !head.recorded;
    badge.textContent = typeof head.recorded === "string" ? `recorded ${head.recorded}` : "recorded run";
    this.charts.show(this.run);
    this.schedule();
  }

  pane(lane) {
    const pane = make("article", "rv-pane");
    const head = make("header", "rv-head");
    const parts = { settings: make("span", "rv-num"), verdict: make("span", "rv-verdict"), differs: make("span", "rv-differs rv-num"),
      count: make("span", "rv-count rv-num") };
    parts.verdict.hidden = true;
    head.append(make("h3", "", lane.title), parts.settings, parts.verdict, parts.differs, parts.count);
    const text = make("div", "rv-text");
    text.tabIndex = 0;
    text.setAttribute("role", "group");
    text.setAttribute("aria-label", `Text of ${lane.title}. Left and right arrows move between tokens, up and down between forwards.`);
    pane.append(head, text);
    pane.dataset.lane = lane.name;
    const view = new TokenView(text, lane, !this.run.recorded, { token: (...a) => this.pointedToken(...a), leave: () => this.left() });
    this.run.views.push({ lane, pane, parts, view });
    return pane;
  }

  line(target, data) {
    const { run } = this;
    if (target === "status") run.note = { text: data.text || "", kind: data.kind || "waiting" };
    else if (target === "pace") run.pace = data.pace || 0;
    else if (target === "verdict") run.lanes.filter((l) => l.name === data.lane).forEach((l) => { l.verdict = data.right; });
    else {
      const lane = run.lanes.find((l) => l.name === target);
      if (!lane) throw new Error(`No lane is called ${target}.`);
      lane.push(data);
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
    if (!run || !run.lanes.length) return;
    run.views.forEach((entry) => this.drawPane(entry));
    this.compare();
    const main = mainLane(run);
    this.figures.update(main, run.lanes.find((lane) => lane !== main));
    this.charts.refresh();
    this.say(state, sentence, main);
  }

  drawPane({ lane, pane, parts, view }) {
    if (lane.header) view.append();
    pane.dataset.method = lane.isMars ? "mars" : "ar";
    pane.dataset.steps = String(lane.steps.length);
    pane.dataset.tokens = String(lane.tokens.length);
    pane.dataset.end = lane.end ? lane.end.reason : "";
    put(parts.settings, settingsText(lane.settings, lane.steps.at(-1)?.blockSize));
    put(parts.count, lane.steps.length ? `${whole(lane.tokens.length)} tokens · ${whole(lane.steps.length)} forwards` : "");
    parts.verdict.hidden = lane.verdict === null;
    parts.verdict.dataset.right = String(lane.verdict);
    put(parts.verdict, lane.verdict ? "✓ right" : "✗ wrong");
  }

  // The first place where the two texts part is marked in both.
  compare() {
    const { run } = this;
    if (run.lanes.length !== 2 || run.differs >= 0) return;
    run.differs = divergence(run.lanes[0], run.lanes[1], run.checked);
    run.checked = Math.min(...run.lanes.map((lane) => lane.tokens.length));
    const isOver = run.lanes.every((lane) => lane.end);
    for (const { view, parts } of run.views) {
      if (run.differs >= 0) {
        view.markDivergence(run.differs);
        put(parts.differs, `differs from token ${run.differs + 1} on`);
      } else if (isOver && run.lanes[0].tokens.length === run.lanes[1].tokens.length) {
        parts.differs.className = "rv-same";
        put(parts.differs, "same text");
      }
    }
  }

  // At most one polite sentence a second for screen readers.
  say(state, sentence, main) {
    const now = performance.now();
    const isOver = !["running", "slow", "waiting"].includes(state);
    if (this.root.contains(document.activeElement) && this.isPointing) return;
    if (!isOver && now - (this.saidAt || 0) < 1000) return;
    this.saidAt = now;
    const step = main.steps[main.steps.length - 1];
    const running = step ? `Step ${main.steps.length}: ${step.count} ${step.count === 1 ? "token" : "tokens"} accepted, ${main.tokens.length} in all.` : sentence;
    put(this.live, isOver ? `${sentence} ${main.tokens.length} tokens in ${main.steps.length} forwards.` : running);
  }

  pointedToken(view, index, anchor, how) {
    const { lane } = view;
    this.isPointing = how === "keyboard";
    this.card.token(lane, index, anchor);
    if (lane === mainLane(this.run)) this.charts.cursor(lane.tokens[index].step.index);
    if (how === "keyboard") put(this.live, this.card.element.innerText.replace(/\s+/g, " "));
  }

  pointedStep(lane, index, point) {
    const entry = this.run.views.find((v) => v.lane === lane);
    entry.view.highlight(index);
    if (lane.end) entry.view.reveal(entry.view.chunks[index]);
    this.charts.cursor(index);
    this.card.step(lane, index, point);
    this.lit = entry.view;
  }

  left() {
    this.isPointing = false;
    this.card.hide();
    this.charts.cursor(-1);
    if (this.lit) this.lit.highlight(-1);
  }

  recolour() {
    this.charts.refresh();
  }
}

export const mountRaceView = (...given) => mountView(RaceView, ...given);
