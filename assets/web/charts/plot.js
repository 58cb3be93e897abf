// The helper for every Plotly figure of the page. How to use it:
//
//   this.plot = new Plot(root, "tau", "Tokens per pass by τ", (c) => ({ data: [...], layout: layout(c, x, y) }));
//   element.append(this.plot.frame);
//   this.plot.refresh(); // whenever the data changed
//
// The function gets the colours of the theme and returns the figure, or null to hide the frame. It is called again
// after a change of the size or the theme. `refresh` draws in a separate task, at most eight times a second and only
// in sight; `drawNow` draws in the current frame. Axes and the layout come from `axis` and `layout`, so that all
// figures look alike. `on` has handlers of Plotly's events, such as { plotly_click: ({ points }) => ... }. The style
// sheet sets the height of `.rv-plot` with --rv-plot-height.

import { coloursOf } from "../core/colours.js";
import { make, watchSight, watchTheme } from "../core/dom.js";

const NEAR = 300; // pixels outside the window within which a figure is already drawn
const PAUSE = 125; // milliseconds between two redraws

/** @type {Promise<Plotly | null> | null} */
let loading = null;

/**
 * Loads Plotly once for all views of the page. Resolves to null if it cannot be loaded.
 * @param {string} url @returns {Promise<Plotly | null>}
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

export class Plot {
  /** @type {Plotly | null} */
  plotly = null;
  isInSight = false;
  isDue = false; // whether the figure has to be drawn again
  isPlotted = false;
  drawnAt = -PAUSE;
  /** @type {number | null} */
  timer = null;

  /**
   * @param {HTMLElement} root the element of the view, whose data-plotly is the URL of Plotly
   * @param {string} key @param {string} title @param {(c: Colours, size: Size) => Figure | null} figure
   * @param {Record<string, (event: Json) => void>} [on]
   */
  constructor(root, key, title, figure, on = {}) {
    this.root = root;
    this.figure = figure;
    this.on = on;
    this.node = /** @type {PlotNode} */ (make("div", "rv-plot"));
    this.caption = make("figcaption", "", title);
    this.frame = make("figure", { "data-chart": key }, this.caption, this.node);
    const isTouch = window.matchMedia("(pointer: coarse)").matches; // there hovering would not end
    this.config = { displaylogo: false, displayModeBar: isTouch ? false : "hover", modeBarButtons: [["toImage"]] };
    watchSight(
      this.frame,
      (isInSight) => {
        this.isInSight = isInSight;
        if (isInSight) loadPlotly(root.dataset.plotly || "").then((plotly) => this.ready(plotly));
      },
      NEAR,
    );
    new ResizeObserver(() => this.refresh()).observe(this.node);
    watchTheme(root, () => this.refresh());
  }

  /** @param {Plotly | null} plotly */
  ready(plotly) {
    this.plotly = plotly;
    if (!plotly) this.node.replaceChildren(make("p", "rv-noplot", "plotly.js did not load, so there is no chart."));
    else if (this.isDue) this.drawNow();
  }

  refresh() {
    this.isDue = true;
    if (this.timer) return;
    const wait = Math.max(0, PAUSE - (performance.now() - this.drawnAt));
    this.timer = setTimeout(() => {
      this.timer = null;
      if (this.isDue) this.drawNow();
    }, wait);
  }

  drawNow() {
    this.isDue = true;
    const { frame, node, plotly, root } = this;
    if (!root.isConnected && this.isPlotted) plotly?.purge(node);
    if (!plotly || !root.isConnected || (!this.isInSight && !frame.hidden)) return;
    const size = { width: node.clientWidth, height: node.clientHeight };
    const figure = this.figure(coloursOf(root), size);
    frame.hidden = !figure;
    this.isDue = Boolean(figure) && !node.clientWidth;
    if (!figure || this.isDue) return;
    this.drawnAt = performance.now();
    Object.assign(figure.layout, size);
    plotly.react(node, figure.data, figure.layout, this.config);
    if (!this.isPlotted) for (const [name, act] of Object.entries(this.on)) node.on(name, act);
    this.isPlotted = true;
  }
}

/** @type {(c: Colours, title: string, more?: Json) => Json} */
export const axis = (c, title, more = {}) => ({
  title: { text: title, standoff: 6, font: { size: 13, color: c.muted } },
  color: c.muted,
  gridcolor: c.grid,
  linecolor: c.line,
  zeroline: false,
  ticks: "outside",
  ticklen: 3,
  tickcolor: c.line,
  tickfont: { size: 13 },
  tickmode: "auto",
  nticks: 6,
  automargin: false,
  ...more,
});

/** @type {(c: Colours, xaxis: Json, yaxis: Json, more?: Json) => Json} */
export const layout = (c, xaxis, yaxis, more = {}) => ({
  margin: { l: 46, r: 16, t: 8, b: 38 },
  paper_bgcolor: c.page, // not transparent, for the picture that Plotly's camera button saves
  plot_bgcolor: "rgba(0,0,0,0)",
  font: { family: c.font, size: 13, color: c.muted },
  showlegend: false,
  hovermode: "closest",
  dragmode: false,
  modebar: { bgcolor: "rgba(0,0,0,0)", color: c.muted, activecolor: c.ink },
  hoverlabel: { bgcolor: c.card, bordercolor: c.line, font: { family: c.font, size: 13, color: c.ink } },
  xaxis: { fixedrange: true, ...xaxis },
  yaxis: { fixedrange: true, ...yaxis },
  ...more,
});

/** @type {(text: string, x: number, y: number, color: string, more?: Json) => Json} a label at a point of the figure */
export const label = (text, x, y, color, more = {}) => ({
  ...{ text: escaped(text), x, y, xref: "x", yref: "y", showarrow: false },
  ...{ xanchor: "left", yanchor: "middle", xshift: 4, font: { size: 13, color } },
  ...more,
});

/** Returns a text without markup that Plotly would interpret. @param {string} text */
export const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("%{", "% {");

const LABEL = 0.2; // height of a label as a share of the figure's height

/**
 * Returns the heights of labels next to a figure: near their values, in the same order, and without overlap.
 * @param {number[]} values
 * @param {number} top value at the top of the figure
 */
export function apart(values, top) {
  const order = values.map((_, i) => i).sort((a, b) => values[a] - values[b] || b - a); // of equal values, the first is on top
  const [placed, labelHeight] = [[...values], LABEL * top];
  order.forEach((at, k) => {
    if (k) placed[at] = Math.max(placed[at], placed[order[k - 1]] + labelHeight);
  });
  const raised = placed.reduce((sum, y, i) => sum + y - values[i], 0) / values.length;
  // No label may be below or, for Plotly would not draw it, above the figure.
  const [low, high] = [Math.min(...placed) - labelHeight / 2, Math.max(...placed) + labelHeight / 2 - top];
  const shift = Math.max(Math.min(raised, low), high);
  return placed.map((y) => y - shift);
}
