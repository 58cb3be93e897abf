// Plotly on three nodes that live as long as the component: one newPlot each, then react on the same node.
// Draws one chart at a time, at most eight per second, less when drawing is slow; never in the way of text.

import { coloursOf } from "../../core/colours.js";
import { find, make } from "../../core/dom.js";
import { mainLane } from "../../core/folds.js";
import { confidenceFigure, forwardsFigure, timeFigure } from "./chart_specs.js";
import { loadPlotly } from "../../core/plotly.js";

const CHARTS = [
  ["forwards", "Tokens accepted by each forward"],
  ["time", "Tokens against measured time, from the prompt read"],
  ["confidence", "Confidence of each accepted token, the threshold τ, and what was refused"],
];
/** @type {Record<string, string>} */
const TWINS = { forwards: "confidence", confidence: "forwards" }; // one forward axis, drawn twice
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

  /**
   * @param {HTMLElement} root
   * @param {ChartReport} report
   */
  constructor(root, report) {
    this.root = root;
    this.report = report;
    this.element = find(root, ".rv-charts");
    this.nodes = {};
    this.dirty = new Set();
    this.pause = PAUSE;
    for (const [key, title] of CHARTS) {
      const figureNode = make("figure");
      figureNode.dataset.chart = key;
      const node = /** @type {PlotNode} */ (make("div", "rv-plot"));
      const [cursor, later] = [make("div", "rv-cursor"), make("div", "rv-later")];
      cursor.hidden = true;
      later.hidden = true;
      node.append(later, cursor); // inside the plot: its own offsets place them, so that moving them asks for no layout
      figureNode.append(make("figcaption", "", title), node);
      this.element.append(figureNode);
      this.nodes[key] = { node, cursor, later, isPlotted: false, zoomed: new Set() };
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
    for (const entry of Object.values(this.nodes)) entry.zoomed.clear();
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

  // The lane that the charts of one lane draw; asked for while there is a run.
  main() {
    return mainLane(this.run || { lanes: [] });
  }

  /** @param {string} key */
  draw(key) {
    const { run, plotly } = this;
    if (!run || !plotly) return;
    const main = mainLane(run);
    if (!run.lanes.some((lane) => lane.steps.length)) return;
    const isLive = run.lanes.some((lane) => !lane.end);
    const c = coloursOf(this.root);
    const spec =
      key === "time"
        ? timeFigure(run.lanes, c)
        : key === "forwards"
          ? forwardsFigure(main, c, isLive)
          : confidenceFigure(main, c, isLive);
    const entry = this.nodes[key];
    spec.layout.width = entry.node.clientWidth;
    spec.layout.height = entry.node.clientHeight;
    if (entry.isPlotted) {
      for (const name of entry.zoomed) spec.layout[name].range = [...entry.node._fullLayout[name].range];
      plotly.react(entry.node, spec.data, spec.layout, this.config(key));
    } else this.plot(key, entry, spec);
    this.drawLater(key);
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
      this.zoomed(key, event);
      this.drawLater(key);
    });
    entry.node.on("plotly_doubleclick", () => this.unzoom(key));
    if (key !== "time") this.listen(entry.node);
  }

  /**
   * Where a reader stands: what is later is veiled in every chart, behind a line.
   * @param {Playhead} playhead
   */
  place(playhead) {
    this.playhead = playhead;
    for (const [key] of CHARTS) this.drawLater(key);
  }

  /** @param {string} key */
  drawLater(key) {
    const { node, later } = this.nodes[key];
    const full = node._fullLayout;
    const { playhead } = this;
    if (!playhead || playhead.isFollowing || !full || !full.xaxis) {
      later.hidden = true;
      return;
    }
    const { xaxis, yaxis } = full;
    const x = xaxis.l2p(key === "time" ? playhead.now : playhead.shown(this.main()) + 0.5);
    const left = Math.max(0, Math.min(xaxis._length, x));
    later.style.transform = `translate(${xaxis._offset + left}px, ${yaxis._offset}px)`;
    later.style.width = `${xaxis._length - left}px`;
    later.style.height = `${yaxis._length}px`;
    later.hidden = false;
  }

  /** @param {string} key */
  config(key) {
    const entry = this.nodes[key];
    const showAll = { name: "all", title: "Show all", icon: this.plotly?.Icons.home, click: () => this.unzoom(key) };
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
   * @param {string} key
   * @param {Json} event
   */
  zoomed(key, event) {
    const entry = this.nodes[key];
    for (const name of ["xaxis", "yaxis"]) {
      if (Object.keys(event).some((changed) => changed.startsWith(`${name}.range`))) entry.zoomed.add(name);
    }
    const twin = this.nodes[TWINS[key]];
    if (!entry.zoomed.has("xaxis") || !twin || !twin.isPlotted) return;
    const { range } = entry.node._fullLayout.xaxis;
    if (twin.node._fullLayout.xaxis.range.every((value, i) => value === range[i])) return;
    this.plotly?.relayout(twin.node, { "xaxis.range": [...range] });
  }

  /** @param {string} key */
  unzoom(key) {
    for (const name of [key, TWINS[key]]) if (name) this.nodes[name].zoomed.clear();
    this.refresh();
  }

  /**
   * The forward under the pointer: its whole column answers, however low its bar is; -1 beside them.
   * @param {PlotNode} node
   * @param {MouseEvent} event
   */
  under(node, event) {
    const { xaxis, yaxis } = node._fullLayout;
    const box = node.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - xaxis._offset, event.clientY - box.top - yaxis._offset];
    const index = Math.round(xaxis.p2l(x)) - 1;
    const isInside =
      x >= 0 && x <= xaxis._length && y >= 0 && y <= yaxis._length && index >= 0 && index < this.main().steps.length;
    const top = box.top + yaxis._offset;
    return {
      index: isInside ? index : -1,
      anchor: { left: event.clientX, right: event.clientX, top, bottom: top + yaxis._length },
    };
  }

  /** @param {PlotNode} node */
  listen(node) {
    node.addEventListener("pointermove", (event) => {
      const { index, anchor } = this.under(node, event);
      if (index < 0 || event.buttons) return this.report.leave();
      return this.report.step(this.main(), index, anchor);
    });
    node.addEventListener("pointerleave", () => this.report.leave());
    // Plotly covers the page while a button is down: a press that ends where it began is a click.
    node.addEventListener(
      "pointerdown",
      (press) => {
        const { index } = this.under(node, press);
        if (index < 0 || press.button !== 0) return;
        window.addEventListener(
          "pointerup",
          (event) => {
            const isStill = Math.hypot(event.clientX - press.clientX, event.clientY - press.clientY) < 4;
            if (isStill) this.report.choose(this.main(), index);
          },
          { once: true },
        );
      },
      true,
    );
  }

  /**
   * A thin line at a forward in both stacked charts; a plain element, so that pointing redraws nothing.
   * @param {number} step
   */
  cursor(step) {
    for (const key of ["forwards", "confidence"]) {
      const { node, cursor } = this.nodes[key];
      const full = node._fullLayout;
      cursor.hidden = true;
      if (step < 0 || !full || !full.xaxis || !full.yaxis) continue;
      const x = full.xaxis.l2p(step + 1);
      if (x < 0 || x > full.xaxis._length) continue;
      cursor.style.left = `${full.xaxis._offset + x}px`;
      cursor.style.top = `${full.yaxis._offset}px`;
      cursor.style.height = `${full.yaxis._length}px`;
      cursor.hidden = false;
    }
  }
}
