// The two figures of a race beside its texts. They contain every displayed pass whenever the texts do: if a pass is
// missing, they are drawn in the same frame. In the figure by pass a veil covers what comes after the displayed
// position, and the mean is drawn when all of the run is displayed. In the figure by time a dot shows the position of each lane, since
// lanes make the same pass at different times.

import { make } from "../core/dom.js";
import { coloursOf, runColours } from "../core/colours.js";
import { mainLane } from "../core/folds.js";
import { passesFigure, timeFigure } from "./specs.js";
import { Plot } from "./plot.js";

const MOST = 1e9; // beyond the end of every axis

export class Charts {
  /** @type {Run | null} */
  run = null;
  /** @type {Playhead | null} */
  playhead = null;
  /** @type {Focus | null} */
  selected = null;
  requested = ""; // the state of the run with which the figures were requested last
  passes = ""; // the same for the figure by pass, with whether it contains the mean

  /**
   * @param {HTMLElement} root @param {HTMLElement} element
   * @param {(lane: Lane, pass: number) => void} choose called with the pass that the visitor clicked
   */
  constructor(root, element, choose) {
    /** @type {(event: Json) => void} */
    const clicked = ({ points: [point] }) => this.run && choose(mainLane(this.run), point.customdata);
    /** @type {(lanes: Lane[], c: Colours) => Figure} */
    const passesOfRun = (lanes, c) => {
      const main = mainLane({ lanes });
      return passesFigure(main, c, lanes.some((lane) => lane.isAr && lane !== main), this.isWhole); // prettier-ignore
    };
    this.charts = [
      this.chart(root, "forwards", "Tokens per forward pass", passesOfRun, clicked),
      this.chart(root, "time", "Tokens by measured time", timeFigure),
    ];
    element.append(...this.charts.map(({ plot }) => plot.frame));
  }

  /**
   * @param {HTMLElement} root @param {string} key @param {string} title
   * @param {(lanes: Lane[], c: Colours) => Figure} figure
   * @param {(event: Json) => void} [clicked] given for a figure by pass: called with a clicked point
   */
  chart(root, key, title, figure, clicked) {
    const [veil, chosen] = ["rv-later", "rv-chosen-pass"].map((name) => make("div", { class: name, hidden: "" }));
    /** @type {Map<string, number>} */
    const contained = new Map(); // number of passes in the figure, by lane
    const draw = (/** @type {Colours} */ c) => {
      const lanes = this.run?.lanes ?? [];
      for (const { name, steps } of lanes) contained.set(name, steps.length);
      return lanes.length ? figure(lanes, c) : null; // without passes: empty axes
    };
    const plot = new Plot(root, key, title, draw, {
      ...(clicked && { plotly_click: clicked }),
      plotly_afterplot: () => this.cover(),
    });
    const dots = make("div", "rv-dots");
    plot.node.append(veil, chosen, dots);
    return { plot, veil, chosen, dots, contained, isByPass: Boolean(clicked) };
  }

  // Whether all of a finished run is displayed.
  get isWhole() {
    return Boolean(this.playhead?.isAtEnd && !this.playhead.isLive);
  }

  /** @param {Run | null} run @param {Playhead | null} playhead */
  show(run, playhead) {
    this.run = run;
    this.playhead = playhead;
    this.requested = "";
    for (const { plot, contained } of this.charts) {
      contained.clear();
      plot.refresh();
    }
  }

  /**
   * Draws the run up to the displayed position. selected: the pass that the visitor chose.
   * @param {Focus | null} selected
   */
  draw(selected) {
    const { playhead, run } = this;
    if (!run || !playhead) return;
    this.selected = selected;
    const state = run.lanes.map((lane) => `${lane.steps.length}${lane.end ? "." : ""}`).join(" ");
    const passes = `${state} ${this.isWhole}`;
    for (const chart of this.charts) {
      const isMissing = run.lanes.some((lane) => (chart.contained.get(lane.name) ?? 0) < playhead.shown(lane));
      if (isMissing) chart.plot.drawNow();
      else if (chart.isByPass ? passes !== this.passes : state !== this.requested) chart.plot.refresh();
    }
    this.requested = state;
    this.passes = passes;
    this.cover();
  }

  // Places the veils and the marks of the chosen pass. They are HTML elements instead of Plotly shapes, so that moving
  // them does not draw the figures again.
  cover() {
    const { playhead, selected } = this;
    if (!playhead) return;
    const step = selected?.lane.steps[selected.step];
    for (const { plot, veil, chosen, dots, isByPass } of this.charts) {
      if (isByPass) placeMark(veil, plot.node, playhead.isAtEnd ? null : { from: playhead.now, to: MOST });
      if (isByPass) placeMark(chosen, plot.node, step ? { from: step.index, to: step.index + 1 } : null);
      else this.placeDots(dots, plot.node);
    }
  }

  /** @param {HTMLElement} dots @param {PlotNode} node */
  placeDots(dots, node) {
    const { playhead, run } = this;
    const { xaxis, yaxis } = node._fullLayout ?? {};
    const isOver = !playhead || playhead.isAtEnd || !xaxis || !yaxis;
    const { runs } = coloursOf(node);
    const marks = (isOver || !run ? [] : run.lanes).map((lane) => {
      const { clock = 0, first = 0, count = 0 } = lane.steps[/** @type {Playhead} */ (playhead).shown(lane) - 1] ?? {};
      const dot = make("i", { "data-lane": lane.name });
      dot.style.color = runs[runColours.placeOf(lane)];
      dot.style.left = `${xaxis._offset + xaxis.l2p(clock)}px`;
      dot.style.top = `${yaxis._offset + yaxis.l2p(first + count)}px`;
      return dot;
    });
    dots.replaceChildren(...marks);
  }
}

/** @param {HTMLElement} mark @param {PlotNode} node @param {Span | null} span */
function placeMark(mark, node, span) {
  const { xaxis, yaxis } = node._fullLayout ?? {};
  mark.hidden = !span || !xaxis || !yaxis;
  if (!span || mark.hidden) return;
  const [left, right] = [span.from, span.to].map((at) => Math.max(0, Math.min(xaxis._length, xaxis.l2p(at))));
  mark.style.transform = `translate(${xaxis._offset + left}px, ${yaxis._offset}px)`;
  mark.style.width = `${right - left}px`;
  mark.style.height = `${yaxis._length}px`;
}
