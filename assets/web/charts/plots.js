// Plotly charts with titles, for all views except the race view. The nodes of the charts stay in the page as long as
// the view, and Plotly.react updates the visible charts. If Plotly did not load, a sentence replaces the charts.

import { coloursOf } from "../core/colours.js";
import { make, watchSight } from "../core/dom.js";
import { saveButtons, tableBlob } from "./saves.js";

/** @type {Promise<Plotly | null> | null} */
let loading = null;

/**
 * Loads Plotly once for all views of the page. Resolves to null if it cannot be loaded.
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
 * Creates the frame of a chart: its title, and below it the node for Plotly.
 * @param {string} key
 * @param {(string | Node)[]} title
 */
export function chartFrame(key, ...title) {
  const node = /** @type {PlotNode} */ (make("div", "rv-plot"));
  const caption = make("figcaption", "", ...title);
  const name = typeof title[0] === "string" ? title[0] : key;
  return { key, name, node, caption, frame: make("figure", { "data-chart": key }, caption, node) };
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
    this.config = { displaylogo: false, responsive: false, displayModeBar, modeBarButtons: [["resetScale2d"]] };
    for (const chart of charts) chart.caption.append(this.saver(chart));
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

  /** @param {ReturnType<typeof chartFrame>} chart */
  saver({ key, name, frame }) {
    const picture = async (/** @type {"png" | "svg"} */ format) => {
      const figure = this.figure(key, frame);
      if (!figure || !this.plotly) return null;
      const url = await this.plotly.toImage(pictureOf(figure, name, this.root), { format, ...PICTURE });
      return (await fetch(url)).blob();
    };
    return saveButtons(name, {
      png: () => picture("png"),
      svg: () => picture("svg"),
      csv: async () => {
        const figure = this.figure(key, frame);
        return figure && tableBlob(pointsOf(figure));
      },
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

const PICTURE = { width: 900, height: 480, scale: 2 };

/**
 * Returns the points of a figure as a table with a heading: series, x, y.
 * @param {Figure} figure
 * @returns {(string | number)[][]}
 */
export const pointsOf = ({ data, layout }) => [
  ["series", layout.xaxis?.title?.text || "x", layout.yaxis?.title?.text || "y"],
  ...data.flatMap(({ name = "", x = [], y = [] }) =>
    x.map((/** @type {number} */ at, /** @type {number} */ i) => [name, at, y[i]]),
  ),
];

/**
 * Returns a chart for a picture file: with its title and a line about the run (status, hardware and versions, prompt).
 * @param {Figure} figure
 * @param {string} title
 * @param {HTMLElement} root
 */
function pictureOf({ data, layout }, title, root) {
  const { card, ink, muted } = coloursOf(root);
  const facts = [".rv-phase", ".rv-env", ".rv-asked .rv-prompt"].map((part) => root.querySelector(part)?.textContent);
  const text = facts.filter(Boolean).join(" · ").replaceAll("<", "&lt;").slice(0, MOST_TOLD);
  const margin = { ...layout.margin, t: 84, b: 72 };
  const subtitle = { text, font: { size: 11, color: muted } };
  const titled = { text: title, x: 0.02, xanchor: "left", font: { size: 15, color: ink }, subtitle };
  return { data, layout: { ...layout, ...PICTURE, margin, title: titled, paper_bgcolor: card, plot_bgcolor: card } };
}

const MOST_TOLD = 150; // maximum characters in one line of the picture
