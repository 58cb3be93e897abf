// The two figures, made by the server (app/batch_charts.py): here they get their colours and a node.

import { loadPlotly } from "../../core/plotly.js";
import { find, make } from "../../core/dom.js";

const CHARTS = [
  ["time", "Tokens of all rows against time of decoding"],
  ["forwards", "What each forward gave: tokens upwards, rows that idled downwards"],
];
const KEYS = [
  ["ramp-4", "tokens"],
  ["mars", "commit"],
  ["warm", "waiting for the block"],
  ["bar-1", "finished"],
];

export class Plots {
  /** @type {Record<string, HTMLElement>} */
  nodes;
  /** @type {Record<string, Figure> | null} */
  figures;
  /** @type {Plotly | null} */
  plotly;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.element = find(root, ".bv-charts");
    this.nodes = {};
    for (const [key, title] of CHARTS) {
      const holder = make("figure");
      holder.dataset.chart = key;
      const caption = make("figcaption", "", title);
      if (key === "forwards") for (const [colour, name] of KEYS) caption.append(this.key(colour, name));
      this.nodes[key] = make("div", "rv-plot");
      holder.append(caption, this.nodes[key]);
      this.element.append(holder);
    }
    this.element.hidden = true;
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /**
   * @param {string} colour
   * @param {string} name
   */
  key(colour, name) {
    const key = make("span", "bv-chartkey", name);
    key.style.setProperty("--key", `var(--rv-${colour})`);
    return key;
  }

  /** @param {Record<string, Figure> | null} figures */
  show(figures) {
    this.figures = figures;
    this.element.hidden = !figures;
    if (!figures) return;
    loadPlotly(this.root.dataset.plotly || "").then((plotly) => {
      this.plotly = plotly;
      if (plotly) this.draw();
      else
        this.element.replaceChildren(
          make(
            "p",
            "rv-noplot",
            "The charts need plotly.js, which did not load; lanes and figures are complete without them.",
          ),
        );
    });
  }

  draw() {
    if (!this.plotly || !this.figures || !this.element.clientWidth) return;
    const style = getComputedStyle(this.root);
    const isCoarse = window.matchMedia("(pointer: coarse)").matches;
    for (const [key] of CHARTS) {
      const { data, layout } = coloured(this.figures[key], style);
      const node = this.nodes[key];
      const hover = {
        bgcolor: style.getPropertyValue("--rv-card").trim(),
        bordercolor: style.getPropertyValue("--rv-line").trim(),
        font: { color: style.getPropertyValue("--rv-ink").trim() },
      };
      Object.assign(layout, {
        width: node.clientWidth,
        height: node.clientHeight,
        dragmode: isCoarse ? false : "zoom",
        hoverlabel: hover,
        modebar: { bgcolor: "rgba(0,0,0,0)", color: style.getPropertyValue("--rv-muted").trim() },
      });
      const config = { displaylogo: false, responsive: false, modeBarButtons: [["toImage", "resetScale2d"]] };
      this.plotly.react(node, data, layout, config);
    }
  }
}

/**
 * Every text that is "@name" becomes the value of the style sheet's variable of that name.
 * @param {any} value
 * @param {CSSStyleDeclaration} style
 * @returns {any}
 */
function coloured(value, style) {
  if (typeof value === "string")
    return value.startsWith("@") ? style.getPropertyValue(`--rv-${value.slice(1)}`).trim() || value : value;
  if (Array.isArray(value)) return value.map((each) => coloured(each, style));
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, coloured(each, style)]));
  return value;
}
