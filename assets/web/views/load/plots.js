// The charts of a load: plotly on nodes that live as long as the view, redrawn with react.

import { coloursOf } from "../../core/colours.js";
import { make } from "../../core/dom.js";
import { loadPlotly } from "../../core/plotly.js";
import { CHARTS, dayFigure, isFor, loadFigure } from "./specs.js";

export class Plots {
  /** @type {LoadModel | null} */
  model = null;
  /** @type {Plotly | null} */
  plotly = null;

  /**
   * @param {HTMLElement} root
   * @param {HTMLElement} element
   */
  constructor(root, element) {
    this.root = root;
    this.element = element;
    this.charts = CHARTS.map(([key, question, title]) => {
      const { holder, node } = chartOf(key, title);
      element.append(holder);
      return { key, question, holder, node };
    });
    this.day = chartOf("day", "Simulated: 99 of 100 answers within so many seconds, by the number of machines");
    new ResizeObserver(() => this.draw()).observe(element);
  }

  /** @param {LoadModel} model */
  async show(model) {
    this.model = model;
    for (const { question, holder } of this.charts) holder.hidden = !isFor(model, question);
    this.plotly ||= await loadPlotly(this.root.dataset.plotly || "");
    if (this.plotly) this.draw();
    else {
      const said = "The charts need plotly.js, which did not load; the figures are complete without them.";
      this.element.replaceChildren(make("p", "rv-noplot", said));
    }
  }

  draw() {
    const { model } = this;
    if (!this.plotly || !model || !this.element.clientWidth) return;
    const c = coloursOf(this.root);
    for (const { key, holder, node } of this.charts) if (!holder.hidden) this.react(node, loadFigure(key, model, c));
    if (model.day && this.day.node.isConnected) this.react(this.day.node, dayFigure(model.day, c));
  }

  /**
   * @param {HTMLElement} node
   * @param {Figure} figure
   */
  react(node, { data, layout }) {
    Object.assign(layout, { width: node.clientWidth, height: node.clientHeight });
    const config = { displaylogo: false, responsive: false, modeBarButtons: [["resetScale2d"]] };
    this.plotly?.react(node, data, layout, config);
  }
}

/**
 * @param {string} key
 * @param {string} title
 */
function chartOf(key, title) {
  const holder = make("figure");
  holder.dataset.chart = key;
  const node = make("div", "rv-plot");
  holder.append(make("figcaption", "", title), node);
  return { holder, node };
}
