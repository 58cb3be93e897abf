// Plotly on nodes that live as long as the component: one newPlot each, then react on the same node.
// Draws one chart at a time, at most eight per second, less when drawing is slow; never in the way of text. All share one
// time axis: what is zoomed, pointed at or chosen in one is so in all.

import { coloursOf } from "../../core/colours.js";
import { find, make, put } from "../../core/dom.js";
import { mainLane } from "../../core/folds.js";
import { confidenceFigure, forwardsFigure, timeFigure } from "./chart_specs.js";
import { latencyFigure } from "./latency_spec.js";
import { ChartLegend } from "./legend.js";
import { Overlay } from "./overlay.js";
import { loadPlotly } from "../../core/plotly.js";
import { listen } from "./pointer.js";
import { beginOf, timeSpan } from "./span.js";

/** @type {[key: string, title: string, isOfOne: boolean][]} */
const CHARTS = [
  ["forwards", "Tokens accepted by each forward", true],
  ["time", "Tokens against measured time, from the prompt read", false],
  ["confidence", "Confidence of each accepted token, the threshold τ, and what was refused", true],
  ["latency", "Time of each forward", false],
];
const PAUSE = 125; // milliseconds between two redraws

export class Charts {
  /** @type {Record<string, ChartEntry>} */
  nodes;
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
  zoom;

  /**
   * @param {HTMLElement} root
   * @param {ChartReport} report
   */
  constructor(root, report) {
    this.root = root;
    this.report = report;
    this.element = find(root, ".rv-charts");
    this.legend = new ChartLegend();
    this.element.append(this.legend.element);
    this.nodes = {};
    this.dirty = new Set();
    this.pause = PAUSE;
    this.zoom = null; // of the time axis
    /** @type {Focus | null} */
    this.selected = null;
    for (const [key] of CHARTS) {
      const figureNode = make("figure");
      figureNode.dataset.chart = key;
      const node = /** @type {PlotNode} */ (make("div", "rv-plot"));
      const caption = make("figcaption");
      figureNode.append(caption, node);
      this.element.append(figureNode);
      this.nodes[key] = { node, caption, overlay: new Overlay(node), isPlotted: false, isTall: false };
    }
    loadPlotly(root.dataset.plotly || "").then((plotly) => this.ready(plotly));
    new ResizeObserver(() => this.resized()).observe(this.element);
  }

  /** @param {Plotly | null} plotly */
  ready(plotly) {
    this.plotly = plotly;
    if (plotly) return this.refresh();
    this.element.replaceChildren(
      make(
        "p",
        "rv-noplot",
        "The charts need plotly.js, which did not load; text and figures are complete without them.",
      ),
    );
    return undefined;
  }

  /** @param {Run | null} run */
  show(run) {
    this.run = run;
    this.zoom = null;
    this.selected = null;
    this.legend.draw(run ? run.lanes : []);
    for (const { node } of Object.values(this.nodes)) node.dataset.isStale = "true"; // until it is drawn, in its turn
    for (const entry of Object.values(this.nodes)) entry.isTall = false;
    for (const [key, title, isOfOne] of CHARTS) {
      const lane = run && isOfOne && run.lanes.length > 1 ? mainLane(run) : null;
      put(this.nodes[key].caption, lane ? `${lane.title}: ${title[0].toLowerCase()}${title.slice(1)}` : title);
    }
    this.refresh();
  }

  refresh() {
    for (const [key] of CHARTS) this.dirty.add(key);
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
    this.timer = setTimeout(() => {
      this.timer = null;
      const [key] = this.dirty;
      this.dirty.delete(key);
      const began = performance.now();
      const isFirst = !this.nodes[key].isPlotted;
      if (this.element.clientWidth > 0) this.draw(key);
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
    const span = timeSpan(lanes, isLive);
    const seen = this.zoom ?? span;
    const c = coloursOf(this.root);
    if (key === "time") return timeFigure(lanes, c, span);
    if (key === "latency") return latencyFigure(lanes, c, span, seen);
    const main = mainLane({ lanes });
    return key === "forwards" ? forwardsFigure(main, c, span, isLive, seen) : confidenceFigure(main, c, span, seen);
  }

  /** @param {string} key */
  draw(key) {
    const { run, plotly } = this;
    if (!run || !plotly || !run.lanes.some((lane) => lane.steps.length)) return;
    this.legend.draw(run.lanes);
    const spec = this.spec(key);
    const entry = this.nodes[key];
    spec.layout.width = entry.node.clientWidth;
    spec.layout.height = entry.node.clientHeight;
    if (this.zoom) spec.layout.xaxis.range = [this.zoom.from, this.zoom.to];
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
    listen(key, entry.node, () => this.run, this.report);
  }

  /**
   * Where a reader stands: what is later is veiled in every chart, behind a line.
   * @param {Playhead} playhead
   */
  place(playhead) {
    this.playhead = playhead;
    for (const entry of Object.values(this.nodes)) this.drawOver(entry);
  }

  /** @param {Focus | null} selected */
  select(selected) {
    this.selected = selected;
    for (const entry of Object.values(this.nodes)) this.drawOver(entry);
  }

  /** @param {ChartEntry} entry */
  drawOver({ overlay }) {
    const { playhead, selected } = this;
    overlay.veil(playhead && !playhead.isFollowing ? playhead.now : null);
    overlay.place(overlay.chosen, selected && spanOf(selected.lane, selected.step));
  }

  /** @param {string} key */
  config(key) {
    const entry = this.nodes[key];
    const showAll = { name: "all", title: "Show all", icon: this.plotly?.Icons.home, click: () => this.unzoom() };
    entry.config ||= {
      displaylogo: false,
      responsive: false,
      doubleClick: false,
      modeBarButtons: [["toImage", showAll]],
    };
    return entry.config;
  }

  /**
   * Plotly keeps a zoom only while the page asks for the same range, and ours grows: so it is kept here.
   * @param {ChartEntry} entry
   * @param {Json} event
   */
  zoomed(entry, event) {
    /** @param {string} name */
    const hasMoved = (name) => Object.keys(event).some((changed) => changed.startsWith(`${name}.range`));
    if (hasMoved("yaxis")) entry.isTall = true;
    if (!hasMoved("xaxis")) return;
    const [from, to] = entry.node._fullLayout.xaxis.range;
    if (this.zoom && this.zoom.from === from && this.zoom.to === to) return;
    this.zoom = { from, to };
    for (const { node, isPlotted } of Object.values(this.nodes))
      if (isPlotted && node !== entry.node) this.plotly?.relayout(node, { "xaxis.range": [from, to] });
    this.report.zoom();
    this.refresh(); // of what is zoomed more can be seen
  }

  unzoom() {
    this.zoom = null;
    for (const entry of Object.values(this.nodes)) entry.isTall = false;
    this.report.zoom();
    this.refresh();
  }

  /**
   * The time of the forward that is pointed at, in every chart; null for none.
   * @param {Focus | null} pointed
   */
  cursor(pointed) {
    const span = pointed && spanOf(pointed.lane, pointed.step);
    for (const { overlay } of Object.values(this.nodes)) overlay.place(overlay.cursor, span);
  }
}

/**
 * @param {Lane} lane
 * @param {number} index
 * @returns {Span}
 */
const spanOf = (lane, index) => ({ from: beginOf(lane.steps[index]), to: lane.steps[index].clock });
