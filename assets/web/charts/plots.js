// Plotly figures with titles: nodes that live as long as their view, redrawn with react if they are visible. If Plotly
// did not load, a sentence replaces them.

import { make, watchSight } from "../core/dom.js";

/** @type {Promise<Plotly | null> | null} */
let loading = null;

/**
 * Loads Plotly once for all views of the page; a failure gives a sentence, not an exception.
 * @param {string} url
 * @returns {Promise<Plotly | null>}
 */
export function loadPlotly(url) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  if (!url) return Promise.resolve(null);
  loading ||= new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => resolve(window.Plotly || null);
    script.onerror = () => resolve(null);
    document.head.append(script);
  });
  return loading;
}

/**
 * The frame of a chart: its title above Plotly's node.
 * @param {string} key
 * @param {(string | Node)[]} title
 */
export function chartFrame(key, ...title) {
  const node = /** @type {PlotNode} */ (make("div", "rv-plot"));
  const caption = make("figcaption", "", ...title);
  return { key, node, caption, frame: make("figure", { "data-chart": key }, caption, node) };
}

/**
 * @param {string} rest what is complete without charts, for that sentence
 */
export const noCharts = (rest) =>
  make("p", "rv-noplot", `plotly.js did not load, so there are no charts; ${rest} complete.`);

export class Plots {
  /** @type {Plotly | null} */
  plotly = null;
  isShown = false;
  /** @type {Set<Element>} */
  inSight = new Set();

  /**
   * figure: returns a chart by its key and frame, null if it is not drawn. rest: what is complete without them.
   * @param {HTMLElement} root
   * @param {HTMLElement} element
   * @param {ReturnType<typeof chartFrame>[]} charts
   * @param {{ figure(key: string, frame: HTMLElement): Figure | null, rest: string, tools?: string[] }} given
   */
  constructor(root, element, charts, { figure, rest, tools = [] }) {
    this.root = root;
    this.element = element;
    this.charts = charts;
    this.figure = figure;
    this.rest = rest;
    this.config = { displaylogo: false, responsive: false, modeBarButtons: [[...tools, "resetScale2d"]] };
    element.append(...charts.map(({ frame }) => frame));
    new ResizeObserver(() => this.draw()).observe(element);
    this.watch(element);
  }

  /**
   * Draws the charts of a node that became visible.
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

  async draw() {
    if (!this.isShown || !this.inSight.size) return;
    this.plotly ||= await loadPlotly(this.root.dataset.plotly || "");
    if (!this.plotly) this.element.replaceChildren(noCharts(this.rest));
    if (!this.plotly || !this.isShown || !this.element.clientWidth) return;
    for (const { key, node, frame } of this.charts) {
      const figure = this.figure(key, frame);
      if (!figure) continue;
      Object.assign(figure.layout, { width: node.clientWidth, height: node.clientHeight });
      this.plotly.react(node, figure.data, figure.layout, this.config);
    }
  }
}
