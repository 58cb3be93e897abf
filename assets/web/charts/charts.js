// The two figures of a race beside its texts. They contain every displayed pass whenever the texts do: if a pass is
// missing, they are drawn in the same frame. A veil covers what comes after the displayed position.

import { make } from "../core/dom.js";
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

  /**
   * @param {HTMLElement} root @param {HTMLElement} element
   * @param {(lane: Lane, pass: number) => void} choose called with the pass that the visitor clicked
   */
  constructor(root, element, choose) {
    /** @type {(event: Json) => void} */
    const clicked = ({ points: [point] }) => this.run && choose(mainLane(this.run), point.customdata);
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
    plot.node.append(veil, chosen);
    return { plot, veil, chosen, contained, isByPass: Boolean(clicked) };
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
    const state = run.lanes.map(({ steps, end }) => `${steps.length}${end ? "." : ""}`).join(" ");
    for (const chart of this.charts) {
      const isMissing = run.lanes.some((lane) => (chart.contained.get(lane.name) ?? 0) < playhead.shown(lane));
      if (isMissing) chart.plot.drawNow();
      else if (state !== this.requested) chart.plot.refresh();
    }
    this.requested = state;
    this.cover();
  }

  // Places the veils and the marks of the chosen pass. They are HTML elements instead of Plotly shapes, so that moving
  // them does not draw the figures again.
  cover() {
    const { playhead, selected } = this;
    if (!playhead) return;
    const step = selected?.lane.steps[selected.step];
    for (const { plot, veil, chosen, isByPass } of this.charts) {
      const at = isByPass ? playhead.now : playhead.seconds;
      placeMark(veil, plot.node, playhead.isAtEnd ? null : { from: at, to: MOST });
      placeMark(chosen, plot.node, step && isByPass ? { from: step.index, to: step.index + 1 } : null);
    }
  }
}

/** @type {(lanes: Lane[], c: Colours) => Figure} */
function passesOfRun(lanes, c) {
  const main = mainLane({ lanes });
  return passesFigure(main, c, lanes.some((lane) => lane.isAr && lane !== main)); // prettier-ignore
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
