// The Frontier view: the choice between sets of results, the chart and the table of a set, and running a measured
// method.

import { button, find, make, put } from "../../core/dom.js";
import {
  Chart,
  curvesOf,
  frontierFinding,
  kindOf,
  marksOf,
  ownMark,
  ownWords,
  wayWords,
} from "../../charts/frontier.js";

const RACE = "#race .mars-race";
const WORDS = {
  accuracy: { axis: "accuracy, %", column: "accuracy", about: "Accuracy of each method" },
  agreement: { axis: "answers identical to AR, %", column: "identical to AR", about: "Answers identical to AR" },
};
const ACROSS = { tpf: "tokens per forward pass", speed: "speed relative to plain AR (×)" };
const FAILED = "The results could not be loaded. Reload the page.";
const RIGHT = { tpf: "fewer passes", speed: "faster" };
const UP = { accuracy: "more correct answers", agreement: "more answers identical to AR's" };

class FrontierView {
  /** @type {FrontierSet[]} */
  sets = [];
  /** @type {PaperCurves | null} */
  paper = null;
  /** @type {{ set: FrontierSet, measure: "tpf" | "speed" } | null} */
  listed = null; // what the table shows

  /**
   * told: requests everything to draw from the server, as JSON.
   * @param {HTMLElement} root
   * @param {() => Promise<string>} told
   */
  constructor(root, told) {
    this.root = root;
    this.told = told;
    this.isAsked = false;
    this.select = /** @type {HTMLSelectElement} */ (find(root, "select"));
    this.layer = /** @type {HTMLInputElement} */ (find(root, ".fv-layer input"));
    this.chart = new Chart(find(root, ".fv-chart"), {
      open: (point) => this.open(point),
      point: (point) => this.pointed(point),
    });
    this.across = /** @type {HTMLInputElement} */ (find(root, ".fv-across input"));
    for (const control of [this.select, this.across]) control.addEventListener("change", () => this.draw());
    this.layer.addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.shown()).observe(find(root, ".fv-chart"));
  }

  // Requests the results when the chart is first visible. Called at every change of the chart's size, because the width
  // of a chart in a hidden tab is 0.
  async shown() {
    if (!this.chart.element.clientWidth) return;
    if (this.isAsked) return this.draw();
    this.isAsked = true;
    try {
      const { sets, paper, failures } = JSON.parse(await this.told());
      Object.assign(this, { sets, paper });
      this.listFailures(failures);
    } catch {
      put(find(this.root, ".fv-said"), FAILED);
      return;
    }
    this.select.replaceChildren(...this.sets.map(({ title }) => make("option", "", title)));
    this.draw();
  }

  /** @param {FrontierFailure[]} failures */
  listFailures(failures) {
    const lines = failures.map(({ title, why, ...way }) =>
      make(
        "li",
        "",
        button("fv-failure", title, () => this.ask(way)),
        `: ${why}`,
      ),
    );
    find(this.root, ".fv-failures ul").replaceChildren(...lines);
  }

  get set() {
    return this.sets[this.select.selectedIndex];
  }

  get run() {
    return document.querySelector(RACE)?.lineView?.run;
  }

  get header() {
    return this.run?.lanes[0]?.header || null;
  }

  /** @returns {"tpf" | "speed"} */
  get measure() {
    return this.across.checked && this.set?.points.every(({ speed }) => speed) ? "speed" : "tpf";
  }

  draw() {
    const { set, paper, measure } = this;
    if (!set) return;
    const isAccuracy = set.quality === "accuracy";
    find(this.root, ".fv-layer").hidden = !isAccuracy;
    find(this.root, ".fv-across").hidden = !set.points.every(({ speed }) => speed);
    const marks = marksOf(set, measure);
    const own = ownMark(this.run, set.quality);
    const curves = paper && isAccuracy && this.layer.checked && measure === "tpf" ? curvesOf(paper) : [];
    put(find(this.root, ".rv-finding"), frontierFinding(set));
    this.root.dataset.points = String(marks.length);
    this.root.dataset.own = String(Boolean(own));
    const shown = measure === "tpf" ? own : null; // the speeds of the set were measured on another machine
    this.chart.draw({ marks, own: shown, curves, axis: WORDS[set.quality].axis, across: ACROSS[measure] });
    this.list(marks, set, measure);
    const { checkpoint = "" } = this.header || {};
    const words = ownWords(own, set.quality, checkpoint === set.checkpoint ? "" : checkpoint);
    put(find(this.root, ".fv-said"), own ? `${words} ${wayWords(set, this.run)}` : words);
    put(find(this.root, ".fv-source"), this.sources(set, curves.length > 0));
    this.pointed(null);
  }

  /**
   * Shows the table of a set. After a change of size the same table stays, so that no row loses the focus.
   * @param {FrontierMark[]} marks
   * @param {FrontierSet} set
   * @param {"tpf" | "speed"} measure
   */
  list(marks, set, measure) {
    if (this.listed?.set === set && this.listed.measure === measure) return;
    this.listed = { set, measure };
    find(this.root, ".fv-table").replaceChildren(this.table(marks, set));
  }

  /**
   * @param {FrontierMark[]} marks
   * @param {FrontierSet} set
   */
  table(marks, set) {
    const { about, column } = WORDS[set.quality];
    const isTimed = set.points.every(({ speed }) => speed);
    const names = ["method", column, "tokens per pass", ...(isTimed ? ["speed"] : [])];
    const heads = names.map((name) => make("th", { scope: "col" }, name));
    return make(
      "table",
      "",
      make("caption", "fv-caption", `${about}, ${set.checkpoint}. Click a method to run it.`),
      make("tr", "", ...heads),
      ...marks.toSorted((a, b) => b.x - a.x).map((mark) => this.row(mark)),
    );
  }

  /** @param {FrontierMark} mark */
  row({ point, y, low, high, isBest }) {
    const kind = kindOf(point.settings);
    const opener = button({ class: "fv-open", "data-kind": kind }, point.name, () => this.open(point));
    for (const event of ["focus", "pointerenter"]) opener.addEventListener(event, () => this.pointed(point));
    for (const event of ["blur", "pointerleave"]) opener.addEventListener(event, () => this.pointed(null));
    const interval = low < high && kind !== "ar" ? ` [${low.toFixed(1)}, ${high.toFixed(1)}]` : "";
    return make(
      "tr",
      isBest ? "fv-best" : "",
      make("th", { scope: "row" }, opener),
      make("td", "", `${y.toFixed(1)} %${interval}`),
      make("td", "", point.tpf.value.toFixed(2)),
      ...(point.speed ? [make("td", "", `${point.speed.value.toFixed(2)}×`)] : []),
    );
  }

  /** @param {FrontierPoint | null} point */
  pointed(point) {
    const { set } = this;
    this.chart.highlight(point ? point.name : null);
    put(
      this.chart.readout,
      point && set
        ? `${point.name}: ${(100 * point.quality.value).toFixed(1)} % ${WORDS[set.quality].column}, ${point.tpf.value.toFixed(2)} tokens per forward pass`
        : set
          ? `Right: ${RIGHT[this.measure]}. Up: ${UP[set.quality]}. No method is beyond the dashed line.`
          : "",
    );
  }

  /**
   * @param {FrontierSet} set
   * @param {boolean} hasPaper
   */
  sources(set, hasPaper) {
    const measured = `Measured with ${set.checkpoint}; the data are in assets/results/${set.source}.`;
    return hasPaper && this.paper
      ? `${measured} Thin lines: the paper's results, B = 4, τ from 1 to 0.5, with fully fine-tuned Qwen2.5. Prompts and limits differ, so compare only the shape. ${this.paper.source}.`
      : measured;
  }

  // Runs a point's method on the prompt of the visitor's run. If that run used another checkpoint, uses the prompt of
  // the measured set.
  /** @param {FrontierPoint} point */
  open(point) {
    const { set, run, header } = this;
    const isSame = header?.checkpoint === set.checkpoint && !run?.recorded;
    const { checkpoint, settings } = point;
    this.ask({ prompt: (isSame && header?.prompt) || set.prompt, checkpoint, settings });
  }

  /** @param {Omit<WayDetail, "kind">} way */
  ask(way) {
    const detail = { kind: "way", ...way };
    this.root.dispatchEvent(new CustomEvent("mars-ask", { bubbles: true, detail }));
  }
}

/**
 * Mounts the view; called by the component's js_on_load. `server.told` is defined in FrontierView (app/ui/views.py).
 * @param {HTMLElement} element
 * @param {{ told(nothing: string): Promise<string> }} server
 */
export function mountFrontierView(element, server) {
  const root = find(element, ".mars-frontier");
  new FrontierView(root, () => server.told(""));
}
