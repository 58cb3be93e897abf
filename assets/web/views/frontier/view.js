// The Frontier tab: the choice of results, their chart and table, and the actions of both.

import { button, find, make, put } from "../../core/dom.js";
import { Chart, curvesOf, kindOf, marksOf, ownMark, ownWords, wayWords } from "../../charts/frontier.js";

const RACE = "#race .mars-race";
const WORDS = {
  accuracy: { axis: "accuracy, %", column: "accuracy", about: "Accuracy against tokens per forward" },
  agreement: {
    axis: "answers that are AR's own, %",
    column: "same as AR",
    about: "Answers that are AR's own against tokens per forward",
  },
};
const FAILED = "The results could not be read: reload the page.";

class FrontierView {
  /** @type {FrontierSet[]} */
  sets = [];
  /** @type {PaperCurves | null} */
  paper = null;

  /**
   * told(): everything to draw, as JSON
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
    this.select.addEventListener("change", () => this.draw());
    this.layer.addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.shown()).observe(find(root, ".fv-chart"));
  }

  // A hidden tab has no width: results are requested when it first has one.
  async shown() {
    if (!this.chart.element.clientWidth) return;
    if (this.isAsked) return this.draw();
    this.isAsked = true;
    try {
      const { sets, paper, failures } = JSON.parse(await this.told());
      Object.assign(this, { sets, paper });
      this.list(failures);
    } catch {
      put(find(this.root, ".fv-said"), FAILED);
      return;
    }
    this.select.replaceChildren(...this.sets.map(({ title }) => make("option", "", title)));
    this.draw();
  }

  /** @param {FrontierFailure[]} failures */
  list(failures) {
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

  draw() {
    const { set, paper } = this;
    if (!set) return;
    const isAccuracy = set.quality === "accuracy";
    find(this.root, ".fv-layer").hidden = !isAccuracy;
    const marks = marksOf(set);
    const own = ownMark(this.run, set.quality);
    const curves = paper && isAccuracy && this.layer.checked ? curvesOf(paper) : [];
    this.root.dataset.points = String(marks.length);
    this.root.dataset.own = String(Boolean(own));
    this.chart.draw({ marks, own, curves, axis: WORDS[set.quality].axis });
    find(this.root, ".fv-table").replaceChildren(this.table(marks, set));
    const { checkpoint = "" } = this.header || {};
    const words = ownWords(own, set.quality, checkpoint === set.checkpoint ? "" : checkpoint);
    put(find(this.root, ".fv-said"), own ? `${words} ${wayWords(set, this.run)}` : words);
    put(find(this.root, ".fv-source"), this.sources(set, curves.length > 0));
    this.pointed(null);
  }

  /**
   * @param {FrontierMark[]} marks
   * @param {FrontierSet} set
   */
  table(marks, set) {
    const { about, column } = WORDS[set.quality];
    const heads = ["way", column, "tokens per forward"].map((name) => make("th", { scope: "col" }, name));
    return make(
      "table",
      "",
      make("caption", "fv-caption", `${about}, ${set.checkpoint}; press a way to open it as a run`),
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
    const interval = low < high ? ` [${low.toFixed(1)}, ${high.toFixed(1)}]` : "";
    return make(
      "tr",
      isBest ? "fv-best" : "",
      make("th", { scope: "row" }, opener),
      make("td", "", `${y.toFixed(1)} %${interval}`),
      make("td", "", point.tpf.value.toFixed(2)),
    );
  }

  /** @param {FrontierPoint | null} point */
  pointed(point) {
    const { set } = this;
    this.chart.highlight(point ? point.name : null);
    put(
      this.chart.readout,
      point && set
        ? `${point.name}: ${(100 * point.quality.value).toFixed(1)} % ${WORDS[set.quality].column}, ${point.tpf.value.toFixed(2)} tokens per forward`
        : "Further right is fewer forwards, further up is better text. The dashed line joins the ways that no other beats.",
    );
  }

  /**
   * @param {FrontierSet} set
   * @param {boolean} hasPaper
   */
  sources(set, hasPaper) {
    const own = `Measured here: ${set.checkpoint}, assets/results/${set.source}.`;
    return hasPaper && this.paper
      ? `${own} Thin lines are the paper's, B = 4, τ from 1 to 0.5: fully fine-tuned Qwen2.5, other prompts and other limits, so only their shape compares. ${this.paper.source}.`
      : own;
  }

  // Uses the prompt of the visitor's run on the same checkpoint, otherwise the set's own.
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
 * Called by the component's js_on_load; `server.told` is the function given to FrontierView in Python.
 * @param {HTMLElement} element
 * @param {{ told(nothing: string): Promise<string> }} server
 */
export function mountFrontierView(element, server) {
  const root = find(element, ".mars-frontier");
  new FrontierView(root, () => server.told(""));
}
