// The Plotly charts of a race. Plotly is loaded when the first chart is visible, and hidden charts are not drawn. One
// chart is drawn at a time, at most eight per second and fewer if drawing is slow, so that charts do not delay the
// text. Charts on the same clock share the time axis and its zoom; all charts share the cursor and the chosen pass.

import { coloursOf } from "../core/colours.js";
import { find, make, put, watchSight } from "../core/dom.js";
import { CLOCKS } from "../core/clocks.js";
import { mainLane, numUntil } from "../core/folds.js";
import { timeSpan } from "./marks.js";
import { loadPlotly } from "./plot.js";
import { chartFrame, noCharts } from "./plots.js";
import { forwardsFigure, timeFigure } from "./specs.js";

/**
 * The charts of a race. isOfOne: whether the chart shows only the main lane. clock: the clock of the
 * chart's time axis, if the chart ignores the clock that the visitor chose.
 * @type {{ key: string, title: string, isOfOne: boolean, clock?: Clock }[]}
 */
const CHARTS = [
  { key: "forwards", title: "Tokens per forward pass (dotted: break-even)", isOfOne: true },
  { key: "time", title: "Tokens by measured time", isOfOne: false, clock: CLOCKS.seconds },
];
const NEAR = 300; // pixels outside the window within which a chart is already drawn, before the visitor scrolls to it
const PAUSE = 125; // milliseconds between two redraws

export class Charts {
  /** @type {Record<string, ChartEntry>} */
  nodes = {};
  /** @type {number} */
  width;
  /** @type {Plotly | null} */
  plotly;
  /** @type {Run | null} */
  run;
  /** @type {number | null} */
  timer;
  /** @type {Playhead} */
  playhead;
  /** @type {Span | null} */
  zoom = null; // the visible span of the shared time axis; null if all of it is visible
  /** @type {Clock} */
  clock = CLOCKS.seconds;

  /**
   * @param {HTMLElement} root
   * @param {ChartReport} report
   */
  constructor(root, report) {
    this.root = root;
    this.report = report;
    this.element = find(root, ".rv-charts");
    this.dirty = new Set();
    this.pause = PAUSE;
    /** @type {Focus | null} */
    this.selected = null;
    for (const { key, clock } of CHARTS) {
      const { frame, node, caption } = chartFrame(key);
      this.element.append(frame);
      const state = { isInSight: false, isPlotted: false, isTall: false };
      const entry = { node, caption, clock, overlay: new Overlay(node), ...state };
      this.nodes[key] = entry;
      watchSight(
        frame,
        (isInSight) => {
          entry.isInSight = isInSight;
          if (isInSight) loadPlotly(root.dataset.plotly || "").then((plotly) => this.ready(plotly));
        },
        NEAR,
      );
    }
    new ResizeObserver(() => this.resized()).observe(this.element);
  }

  /** @param {Plotly | null} plotly */
  ready(plotly) {
    this.plotly = plotly;
    if (plotly) this.schedule();
    else this.element.replaceChildren(noCharts("text and figures are"));
  }

  /**
   * @param {Run | null} run
   * @param {Clock} clock
   */
  show(run, clock) {
    this.run = run;
    this.clock = clock;
    this.zoom = null;
    this.selected = null;
    for (const { node } of Object.values(this.nodes)) node.dataset.isStale = "true"; // until the chart is redrawn
    for (const entry of Object.values(this.nodes)) entry.isTall = false;
    for (const { key, title, isOfOne } of CHARTS) {
      const lane = run && isOfOne && run.lanes.length > 1 ? mainLane(run) : null;
      put(this.nodes[key].caption, lane ? `${lane.title}: ${title[0].toLowerCase()}${title.slice(1)}` : title);
    }
    this.refresh();
  }

  refresh() {
    for (const { key } of CHARTS) this.dirty.add(key);
    this.schedule();
  }

  resized() {
    if (this.width === this.element.clientWidth) return;
    this.width = this.element.clientWidth;
    this.refresh();
  }

  schedule() {
    if (this.timer || !this.plotly || !this.run || !this.dirty.size) return;
    if (!this.root.isConnected) {
      Object.values(this.nodes).forEach(({ node }) => this.plotly?.purge(node));
      return;
    }
    const next = () => [...this.dirty].find((key) => this.nodes[key].isInSight);
    if (!next()) return;
    this.timer = setTimeout(() => {
      this.timer = null;
      const key = next();
      if (!key || !this.element.clientWidth) return; // the chart is redrawn when it is visible again
      this.dirty.delete(key);
      const began = performance.now();
      const isFirst = !this.nodes[key].isPlotted;
      this.draw(key);
      this.pause = isFirst ? PAUSE : Math.max(PAUSE, Math.min(1000, (performance.now() - began) * 10));
      this.schedule();
    }, this.pause);
  }

  /**
   * @param {string} key
   * @returns {Figure}
   */
  spec(key) {
    const { lanes } = /** @type {Run} */ (this.run);
    const isLive = lanes.some((lane) => !lane.end);
    const clock = this.clockOf(this.nodes[key]);
    const span = timeSpan(lanes, isLive, clock);
    const seen = this.zoomOf(this.nodes[key]) ?? span;
    const c = coloursOf(this.root);
    if (key === "time") return timeFigure(lanes, c, span, clock);
    const main = mainLane({ lanes });
    const ar = lanes.find((lane) => lane.isAr && lane !== main);
    return forwardsFigure(main, c, span, clock, isLive, seen, ar);
  }

  /** @param {string} key */
  draw(key) {
    const { run, plotly } = this;
    if (!run || !plotly || !run.lanes.some((lane) => lane.steps.length)) return;
    const spec = this.spec(key);
    const entry = this.nodes[key];
    spec.layout.width = entry.node.clientWidth;
    spec.layout.height = entry.node.clientHeight;
    const zoom = this.zoomOf(entry);
    if (zoom) spec.layout.xaxis.range = [zoom.from, zoom.to];
    if (entry.isPlotted) {
      if (entry.isTall) spec.layout.yaxis.range = [...entry.node._fullLayout.yaxis.range];
      plotly.react(entry.node, spec.data, spec.layout, this.config(key));
    } else this.plot(key, entry, spec);
    delete entry.node.dataset.isStale;
    this.drawOver(entry);
  }

  /**
   * @param {string} key
   * @param {ChartEntry} entry
   * @param {Figure} spec
   */
  plot(key, entry, spec) {
    entry.isPlotted = true;
    this.plotly?.newPlot(entry.node, spec.data, spec.layout, this.config(key));
    entry.node.on("plotly_relayout", (event) => {
      this.zoomed(entry, event);
      this.drawOver(entry);
    });
    entry.node.on("plotly_doubleclick", () => this.unzoom());
    listen(key, entry.node, this);
  }

  /**
   * Sets the displayed position in all charts: a veil covers the part of each chart after this position.
   * @param {Playhead} playhead
   */
  place(playhead) {
    this.playhead = playhead;
    for (const entry of Object.values(this.nodes)) this.drawOver(entry);
  }

  /**
   * @param {ChartEntry} entry
   * @returns {Clock}
   */
  clockOf({ clock }) {
    return clock ?? this.clock;
  }

  /**
   * Returns the zoom for a chart; null for a chart with a separate clock, which does not share the zoom.
   * @param {ChartEntry} entry
   */
  zoomOf(entry) {
    return this.clockOf(entry) === this.clock ? this.zoom : null;
  }

  /** @param {Focus | null} selected */
  select(selected) {
    this.selected = selected;
    for (const entry of Object.values(this.nodes)) this.drawOver(entry);
  }

  /** @param {ChartEntry} entry */
  drawOver(entry) {
    const { playhead, selected } = this;
    const clock = this.clockOf(entry);
    entry.overlay.veil(playhead && !playhead.isAtEnd ? playhead.timeOn(clock) : null);
    entry.overlay.place(entry.overlay.chosen, selected && spanOf(selected, clock));
  }

  /** @param {string} key */
  config(key) {
    const entry = this.nodes[key];
    const showAll = { name: "all", title: "Show all", icon: this.plotly?.Icons.home, click: () => this.unzoom() };
    const config = { displaylogo: false, responsive: false, doubleClick: false };
    return (entry.config ||= { ...config, modeBarButtons: [["toImage", showAll]] });
  }

  /**
   * Stores the zoom after the visitor has changed it, and applies it to the other charts. The zoom is stored here
   * because Plotly forgets it when the chart's range changes, as it does during a run.
   * @param {ChartEntry} entry
   * @param {Json} event
   */
  zoomed(entry, event) {
    /** @param {string} name */
    const hasMoved = (name) => Object.keys(event).some((changed) => changed.startsWith(`${name}.range`));
    if (hasMoved("yaxis")) entry.isTall = true;
    if (!hasMoved("xaxis") || this.clockOf(entry) !== this.clock) return;
    const [from, to] = entry.node._fullLayout.xaxis.range;
    if (this.zoom && this.zoom.from === from && this.zoom.to === to) return;
    this.zoom = { from, to };
    for (const other of Object.values(this.nodes))
      if (other.isPlotted && other !== entry && this.zoomOf(other))
        this.plotly?.relayout(other.node, { "xaxis.range": [from, to] });
    this.report.zoom();
    this.refresh(); // zoomed charts are drawn in more detail
  }

  unzoom() {
    this.zoom = null;
    for (const entry of Object.values(this.nodes)) entry.isTall = false;
    this.report.zoom();
    this.refresh();
  }

  /**
   * Adds a mark to every chart at the time of the pass that the visitor points at; null removes the marks.
   * @param {Focus | null} pointed
   */
  cursor(pointed) {
    for (const entry of Object.values(this.nodes))
      entry.overlay.place(entry.overlay.cursor, pointed && spanOf(pointed, this.clockOf(entry)));
  }
}

/**
 * @param {Focus} pass
 * @param {Clock} clock
 * @returns {Span}
 */
const spanOf = ({ lane, step }, clock) => ({ from: clock.begin(lane.steps[step]), to: clock.end(lane.steps[step]) });

// The marks drawn over a chart: the pass that the visitor points at, the chosen pass, and a veil over the part after
// the displayed position. The marks are HTML elements instead of Plotly shapes, so that moving them does not redraw the
// chart.
export class Overlay {
  /** @param {PlotNode} node */
  constructor(node) {
    this.node = node;
    this.cursor = make("div", { class: "rv-cursor", hidden: "" });
    this.chosen = make("div", { class: "rv-cursor rv-cursor-chosen", hidden: "" });
    this.later = make("div", { class: "rv-later", hidden: "" });
    // The marks are inside the plot's node, where Plotly's own offsets give their positions, so that moving a mark
    // causes no layout.
    node.append(this.later, this.chosen, this.cursor);
  }

  /**
   * Places a mark at the time of a pass, at least one pixel wide; null hides the mark.
   * @param {HTMLElement} mark
   * @param {Span | null} span
   */
  place(mark, span) {
    const full = this.node._fullLayout;
    mark.hidden = true;
    if (!span || !full || !full.xaxis || !full.yaxis) return;
    const { xaxis, yaxis } = full;
    const left = Math.max(0, xaxis.l2p(span.from));
    const right = Math.min(xaxis._length, xaxis.l2p(span.to));
    if (right < left) return;
    mark.style.left = `${xaxis._offset + left}px`;
    mark.style.width = `${Math.max(1, right - left)}px`;
    mark.style.top = `${yaxis._offset}px`;
    mark.style.height = `${yaxis._length}px`;
    mark.hidden = false;
  }

  /** @param {number | null} time the displayed position; null removes the veil */
  veil(time) {
    const { later, node } = this;
    const full = node._fullLayout;
    later.hidden = time === null || !full || !full.xaxis;
    if (later.hidden || time === null) return;
    const { xaxis, yaxis } = full;
    const left = Math.max(0, Math.min(xaxis._length, xaxis.l2p(time)));
    later.style.transform = `translate(${xaxis._offset + left}px, ${yaxis._offset}px)`;
    later.style.width = `${xaxis._length - left}px`;
    later.style.height = `${yaxis._length}px`;
  }
}

/**
 * Returns the index of the pass that was in progress at a time; -1 if there is none.
 * @param {Lane} lane
 * @param {number} time
 * @param {Clock} clock
 */
function stepAt(lane, time, clock) {
  const index = numUntil(lane, time, clock);
  return time >= 0 && index < lane.steps.length ? index : -1;
}

/**
 * Returns the pass at the pointer's time; the pointer's height does not matter. In a chart of several lanes, chooses
 * the lane with the value nearest to the pointer. Returns null outside the plot.
 * @param {string} key
 * @param {PlotNode} node
 * @param {Charts} charts
 * @param {MouseEvent} event
 * @returns {{ lane: Lane, index: number } | null}
 */
function under(key, node, charts, event) {
  const { run } = charts;
  const clock = charts.clockOf(charts.nodes[key]);
  if (!run) return null;
  const { xaxis, yaxis } = node._fullLayout;
  const box = node.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left - xaxis._offset, event.clientY - box.top - yaxis._offset];
  if (x < 0 || x > xaxis._length || y < 0 || y > yaxis._length) return null;
  const isOfAll = key === "time";
  const candidates = (isOfAll ? run.lanes : [mainLane(run)])
    .map((lane) => ({ lane, index: stepAt(lane, xaxis.p2l(x), clock) }))
    .filter(({ index }) => index >= 0);
  /** @param {{ lane: Lane, index: number }} given */
  const distance = ({ lane: { steps }, index }) => Math.abs(yaxis.l2p(steps[index].first + steps[index].count) - y);
  return candidates.sort((a, b) => distance(a) - distance(b))[0] ?? null;
}

/**
 * @param {string} key
 * @param {PlotNode} node
 * @param {Charts} charts
 */
function listen(key, node, charts) {
  const { report } = charts;
  /** @param {MouseEvent} event */
  const at = (event) => under(key, node, charts, event);
  node.addEventListener("pointermove", (event) => {
    const pass = at(event);
    if (!pass || event.buttons) return report.leave();
    return report.step(pass.lane, pass.index);
  });
  node.addEventListener("pointerleave", () => report.leave());
  // Clicks have to be detected here, because Plotly covers the page while a mouse button is down and no click event
  // occurs. A press that ends where it began counts as a click.
  node.addEventListener(
    "pointerdown",
    (press) => {
      const pass = at(press);
      if (!pass || press.button !== 0) return;
      window.addEventListener(
        "pointerup",
        (event) => {
          const isStill = Math.hypot(event.clientX - press.clientX, event.clientY - press.clientY) < 4;
          if (isStill) report.choose(pass.lane, pass.index);
        },
        { once: true },
      );
    },
    true,
  );
}
