// The overlaid charts: plotly on two nodes that live as long as the view, redrawn with react.

import { coloursOf } from "../../core/colours.js";
import { make } from "../../core/dom.js";
import { loadPlotly } from "../../core/plotly.js";
import { PLOTS, overlayFigure } from "./plot_specs.js";

export class Plots {
  /** @type {Lane[]} */
  lanes;
  /** @type {Plotly | null} */
  plotly;

  /**
   * @param {HTMLElement} root
   * @param {HTMLElement} element
   */
  constructor(root, element) {
    this.root = root;
    this.element = element;
    this.lanes = [];
    /** @type {[key: "time" | "forwards", node: HTMLElement][]} */
    this.nodes = PLOTS.map(([key, title]) => {
      const holder = make("figure");
      const node = make("div", "rv-plot");
      holder.dataset.chart = key;
      holder.append(make("figcaption", "", title), node);
      element.append(holder);
      return [key, node];
    });
    new ResizeObserver(() => this.draw()).observe(element);
  }

  /** @param {Lane[]} lanes */
  async show(lanes) {
    this.lanes = lanes;
    this.plotly ||= await loadPlotly(this.root.dataset.plotly || "");
    if (this.plotly) this.draw();
    else
      this.element.replaceChildren(
        make(
          "p",
          "rv-noplot",
          "The charts need plotly.js, which did not load; figures and texts are complete without them.",
        ),
      );
  }

  draw() {
    if (!this.plotly || !this.lanes.length || !this.element.clientWidth) return;
    const c = coloursOf(this.root);
    for (const [key, node] of this.nodes) {
      const { data, layout } = overlayFigure(key, this.lanes, c);
      Object.assign(layout, { width: node.clientWidth, height: node.clientHeight });
      this.plotly.react(node, data, layout, {
        displaylogo: false,
        responsive: false,
        modeBarButtons: [["resetScale2d"]],
      });
    }
  }
}
