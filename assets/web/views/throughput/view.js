// The Throughput view: requests that are decoded together, as rows of growing text, with live figures and their chart.
// A recorded run is played in its own time.

import { Plot } from "../../charts/plot.js";
import { button, find, make, put } from "../../core/dom.js";
import { lastOf } from "../../core/folds.js";
import { PhaseView, mountOf } from "../../core/line_view.js";
import { capitalised, counted, figure, whole } from "../../core/words.js";
import { throughputFigure } from "./chart.js";
import { measuredParts, measuredText, ratesText } from "./measured.js";
import { State } from "./state.js";

const FIGURES = [
  ["done", "answers done"],
  ["rate", "tokens/s, last 2 s"],
  ["tpf", "per pass, last 2 s"],
];
const PAUSE = 500; // milliseconds; a longer time between two frames means that the page was in the background
const MOST = 5; // tokens of a pass from which on the colour stays the same
const LEGEND = ["1 token", "2", "3", "4", "5 or more"];

class ThroughputView extends PhaseView {
  static what = "This run";
  static empty =
    "Press Run to decode a queue of prompts, several at once. When an answer ends, the next prompt takes its row. τ and B act on the running batch.";

  /** @type {[tag: string, data: any][]} */
  pending = []; // lines of a recorded run that are not played yet
  /** @type {[tag: string, data: any][]} */
  recording = []; // all of its lines
  played = 0; // seconds of the recorded run
  frameAt = 0;
  /** @type {MeasuredLine | null} */
  shown = null; // the measurement in the table
  /** @type {ThroughputHead} */
  head;
  /** @type {State} */
  state;
  /** @type {RowView[]} */
  views;

  /** @param {ConstructorParameters<typeof PhaseView>} given */
  constructor(...given) {
    super(...given);
    const { root } = this;
    this.rows = find(root, ".tv-rows");
    this.figures = Object.fromEntries(FIGURES.map(([key]) => [key, make("dd", "rv-num")]));
    find(root, ".tv-figures").append(
      ...FIGURES.map(([key, name]) => make("dl", { "data-key": key }, make("dt", "", name), this.figures[key])),
    );
    this.plot = new Plot(root, "throughput", "The last 2 seconds of decoding; reading prompts is not counted", (c) =>
      throughputFigure(this.state, c),
    );
    find(root, ".tv-chart").append(this.plot.frame);
    const marks = LEGEND.map((text, i) => make("span", { class: "tv-mark", "data-n": i + 1 }, text));
    find(root, ".tv-legend").append(
      "Written by one pass: ",
      ...marks,
      " Move τ or B during a run: the next pass uses it.",
    );
    this.result = find(root, ".tv-measured");
    find(root, ".tv-again").append(button("", "Play again", () => this.playAgain()));
    this.clear();
  }

  clear() {
    this.start({ run: "", rows: 0, prompts: [] });
    this.showOpening();
  }

  /** @param {ThroughputHead} head */
  start(head) {
    this.root.dataset.rows = String(head.rows); // before the status, whose height is kept
    this.begin(head);
    this.head = head;
    this.state = new State(head);
    this.recording = [];
    this.pending = [];
    this.root.dataset.run = String(head.run);
    this.views = this.state.slots.map(() => new RowView(head.prompts));
    this.rows.replaceChildren(...this.views.map(({ element }) => element));
    this.schedule();
  }

  /**
   * @param {string} tag
   * @param {any} data
   */
  line(tag, data) {
    if (!this.reader.recorded) return this.apply(tag, data);
    this.recording.push([tag, data]);
    this.pending.push([tag, data]);
  }

  // Plays a recorded run from its start.
  playAgain() {
    const { recording } = this;
    this.start(this.head);
    this.recording = recording;
    this.pending = [...recording];
  }

  /**
   * @param {string} tag
   * @param {any} data
   */
  apply(tag, data) {
    if (tag === "status") this.showStatus(data);
    else this.state.apply(tag, data);
    if (tag === "begin") this.played = 0;
    if (tag === "figures" || tag === "begin" || tag === "level") this.plot.refresh();
  }

  // Applies the lines of a recorded run up to the time that has passed since its start while the view was visible.
  play() {
    const now = performance.now();
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (this.root.clientWidth) this.played += Math.min(now - this.frameAt, PAUSE) / 1000;
    this.frameAt = now;
    let count = 0;
    while (count < this.pending.length && (isStill || !(this.pending[count][1].at > this.played))) {
      this.apply(...this.pending[count]);
      count += 1;
    }
    this.pending.splice(0, count);
    this.schedule();
  }

  draw() {
    if (this.pending.length) this.play();
    const { state } = this;
    this.views.forEach((view, i) => view.draw(state.slots[i]));
    const point = state.points.at(-1);
    put(this.figures.done, point ? whole(point.done) : "–");
    put(this.figures.rate, point ? figure(point.rate) : "–");
    put(this.figures.tpf, point ? figure(point.tpf) : "–");
    this.root.dataset.done = String(point?.done ?? 0);
    this.root.dataset.method = state.begin?.method ?? "";
    this.root.dataset.moves = String(state.moves.filter(({ text }) => text).length);
    this.root.dataset.isPlayed = String(Boolean(this.recording.length && !this.pending.length));
    this.showFinding(this.isOver ? (state.measured ? measuredText(state.measured) : ratesText(state)) : "");
    if (state.measured !== this.shown) this.result.replaceChildren(...measuredParts(state.measured));
    this.shown = state.measured;
  }

  get heading() {
    const { begin, slots, points } = this.state;
    if (!begin) return "";
    const waiting = points.length && begin.round === 0 ? `, ${whole(lastOf(points).waiting)} waiting` : "";
    return `${capitalised(begin.title)}: ${counted(slots.length, "request")} at once${waiting}`;
  }
}

export const mountThroughputView = mountOf(ThroughputView);

// A row: the number and the text of its prompt, and the answer as one span per pass. Only the end of a long answer is
// visible.
class RowView {
  /** @type {Slot | null} */
  slot = null;
  drawn = 0;

  /** @param {string[]} prompts */
  constructor(prompts) {
    this.prompts = prompts;
    this.number = make("b", "rv-num");
    this.prompt = make("span", { dir: "auto" });
    this.text = make("div", { dir: "auto" });
    const label = make("div", "tv-label", this.number, this.prompt);
    this.element = make("section", "tv-row", label, make("div", "tv-text", this.text));
  }

  /** @param {Slot | null} slot */
  draw(slot) {
    if (slot !== this.slot) {
      this.slot = slot;
      this.drawn = 0;
      this.text.replaceChildren();
      put(this.number, slot ? String(slot.prompt + 1) : "");
      put(this.prompt, slot ? this.prompts[slot.prompt].replace(/\s+/g, " ") : "");
    }
    this.element.dataset.end = slot?.end ?? "";
    if (!slot) return;
    for (const { text, count } of slot.pieces.slice(this.drawn))
      if (text) this.text.append(make("span", { "data-n": Math.min(count, MOST) }, text));
    this.drawn = slot.pieces.length;
  }
}
