// Plotly charts with titles. New figures use plot.js instead. The nodes of the charts stay in the page as long as
// the view, and Plotly.react updates the visible charts. If Plotly did not load, a sentence replaces the charts.

import { make, watchSight } from "../core/dom.js";
import { loadPlotly } from "./plot.js";

/**
 * Creates the frame of a chart: its title, and below it the node for Plotly.
 * @param {string} key
 * @param {(string | Node)[]} title
 */
export function chartFrame(key, ...title) {
  const node = /** @type {PlotNode} */ (make("div", "rv-plot"));
  const caption = make("figcaption", "", ...title);
  return { key, node, caption, frame: make("figure", { "data-chart": key }, caption, node) };
}

/**
 * Creates the sentence that replaces the charts if Plotly did not load.
 * @param {string} rest what is complete without charts, with its verb, such as "the tables are"
 */
export const noCharts = (rest) =>
  make("p", "rv-noplot", `plotly.js did not load, so there are no charts; ${rest} complete.`);

export class Plots {
  /** @type {Plotly | null} */
  plotly = null;
  isShown = false;
  isDrawing = false;
  isDue = false; // whether the charts have to be drawn again
  /** @type {Set<Element>} */
  inSight = new Set();

  /**
   * figure: returns the chart for a key and its frame, or null to hide the chart. rest: names what is complete without
   * charts (noCharts).
   * @param {HTMLElement} root
   * @param {HTMLElement} element
   * @param {ReturnType<typeof chartFrame>[]} charts
   * @param {{ figure(key: string, frame: HTMLElement): Figure | null, rest: string }} given
   */
  constructor(root, element, charts, { figure, rest }) {
    this.root = root;
    this.element = element;
    this.charts = charts;
    this.figure = figure;
    this.rest = rest;
    const displayModeBar = matchMedia("(pointer: coarse)").matches ? false : "hover"; // on a touch screen, hovering would not end
    this.config = {
      displaylogo: false,
      responsive: false,
      displayModeBar,
      modeBarButtons: [["toImage", "resetScale2d"]],
    };
    element.append(...charts.map(({ frame }) => frame));
    new ResizeObserver(() => this.draw()).observe(element);
    this.watch(element);
  }

  /**
   * Draws the charts each time that the node `holder` becomes visible.
   * @param {Element} holder
   */
  watch(holder) {
    watchSight(holder, (isInSight) => {
      if (isInSight) this.inSight.add(holder);
      else this.inSight.delete(holder);
      this.draw();
    });
  }

  show() {
    this.isShown = true;
    this.draw();
  }

  clear() {
    this.isShown = false;
    for (const { node, frame } of this.charts) {
      frame.hidden = true;
      this.plotly?.purge(node);
    }
  }

  // Draws the charts one after the other, each in a separate task, so that the page stays responsive.
  async draw() {
    this.isDue = true;
    if (this.isDrawing) return;
    this.isDrawing = true;
    try {
      while (this.isDue) {
        this.isDue = false;
        await this.drawEach();
      }
    } finally {
      this.isDrawing = false;
    }
  }

  async drawEach() {
    if (!this.isShown || !this.inSight.size) return;
    this.plotly ||= await loadPlotly(this.root.dataset.plotly || "");
    if (!this.plotly) this.element.replaceChildren(noCharts(this.rest));
    // Compute all figures before drawing: a figure without data hides its frame, and this changes the size of the other
    // frames.
    const figures = this.charts.map(({ key, frame }) => this.figure(key, frame));
    for (const [i, { node }] of this.charts.entries()) {
      const figure = figures[i];
      if (!this.plotly || !this.isShown || !this.element.clientWidth) return;
      if (!figure) continue;
      Object.assign(figure.layout, { width: node.clientWidth, height: node.clientHeight });
      this.plotly.react(node, figure.data, figure.layout, this.config);
      await new Promise((resolve) => setTimeout(resolve));
    }
  }
}
