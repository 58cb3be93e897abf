// The figures of a batch: the first method large, the second beneath; hardware and legend.
// Every number was folded from the events by the server.

import { find, make, put } from "../../core/dom.js";
import { loadPlotly } from "../../core/plotly.js";
import { DEFINITION, speedup, speedupRemark, speedupText } from "../../core/speedup.js";
import { counted, environment, figure, memory, whole } from "../../core/words.js";

const BIG = [
  ["speed", "speedup of decoding, first over second", ""],
  ["perSecond", "tokens per second", "tok/s"],
  ["tpf", "effective TPF", ""],
  ["idle", "row-forwards idle", "%"],
];
const SMALL = [
  ["forwards", "forwards"],
  ["cache", "peak cache"],
];
/** @type {Record<string, string>} */
const HINTS = {
  speed: DEFINITION,
  tpf: "Tokens over row-forwards: idle rows and commits count as forwards.",
  idle: "Share of rows times forwards that took nothing.",
  cache: "Keys and values reserved for the largest group of rows.",
};

export class Totals {
  /** @type {Record<string, { list: HTMLElement, number: Node, sub: HTMLElement }>} */
  nodes;
  /** @type {Side[]} */
  sides;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.element = find(root, ".rv-figures");
    this.env = find(root, ".rv-env");
  }

  /** @param {Side[]} sides */
  build(sides) {
    this.sides = sides;
    this.nodes = {};
    this.element.replaceChildren();
    for (const [key, name, unit] of BIG.slice(sides.length > 1 ? 0 : 1)) {
      const list = make("dl", "rv-figure");
      list.dataset.key = key === "speed" ? "speedup" : key;
      if (HINTS[key]) list.title = HINTS[key];
      const value = make("dd", "rv-value rv-num");
      const number = document.createTextNode("–");
      value.append(number, make("small", "", unit));
      this.nodes[key] = { list, number, sub: make("dd", "rv-sub rv-num") };
      list.append(make("dt", "", name), value, this.nodes[key].sub);
      this.element.append(list);
    }
    const list = make("dl", "rv-small rv-num");
    for (const [key, name] of SMALL) {
      this.nodes[key] = { number: make("dd", "", "–"), list, sub: make("dd") };
      const title = make("dt", "", name);
      if (HINTS[key]) title.title = HINTS[key];
      list.append(title, this.nodes[key].number);
    }
    this.element.append(list);
    put(this.env, "");
  }

  update() {
    const [first, second] = this.sides.map((side) => side.totals);
    const { sides } = this;
    /** @param {(totals: BatchTotals) => string} text */
    const beside = (text) => (second ? `${brief(sides[1])}: ${text(second)}` : "");
    if (this.nodes.speed) {
      const found = first && second && sides[1].end ? speedup(measured(sides[0]), measured(sides[1])) : null;
      this.nodes.speed.list.dataset.kind = found ? found.kind : "none";
      this.set(
        "speed",
        found ? speedupText(found) + (found.kind === "slower" ? " slower" : "") : "–",
        found ? speedupRemark(found) : "when both have run",
      );
    }
    this.set(
      "perSecond",
      first ? figure(first.tokens_per_second) : "–",
      beside((t) => figure(t.tokens_per_second)),
    );
    this.set(
      "tpf",
      first ? figure(first.effective_tpf) : "–",
      beside((t) => figure(t.effective_tpf)),
    );
    this.set(
      "idle",
      first ? percent(first.idle_share) : "–",
      beside((t) => `${percent(t.idle_share)} %`),
    );
    /** @param {(totals: BatchTotals) => string} text */
    const both = (text) => [first, second].flatMap((totals) => (totals ? [text(totals)] : [])).join(" · ") || "–";
    put(
      this.nodes.forwards.number,
      both((t) => whole(t.num_forwards) + (t.num_commits ? ` (${counted(t.num_commits, "commit")})` : "")),
    );
    put(
      this.nodes.cache.number,
      both((t) => memory(t.peak_cache_bytes)),
    );
    put(this.env, environment(sides.find((side) => side.header)?.header));
  }

  /**
   * @param {string} key
   * @param {string} text
   * @param {string} sub
   */
  set(key, text, sub) {
    const { number, sub: below } = this.nodes[key];
    put(number, text);
    put(below, sub);
  }
}

/** @param {Side} given */
const measured = ({ rows, seconds }) => ({ tokens: rows.reduce((sum, row) => sum + row.tokens, 0), seconds });

/** @param {Side} side */
const brief = (side) => side.title.replace("MARS, ", "");

/** @param {number} share */
const percent = (share) => (share ? figure(100 * share) : "0");

/**
 * What the colours and marks of the lanes mean.
 * @param {HTMLElement} element
 * @param {(isOn: boolean) => void} onTexts
 */
export function buildLegend(element, onTexts) {
  /**
   * @param {Node} node
   * @param {string} text
   */
  const item = (node, text) => {
    const both = make("span", "bv-key");
    both.append(node, make("span", "", text));
    return both;
  };
  const swatches = make("span", "rv-keys");
  for (const n of [1, 2, 3, 4, 5]) {
    const swatch = make("i", "bv-cell bv-swatch", n === 5 ? "5+" : String(n));
    swatch.dataset.n = String(n);
    swatches.append(swatch);
  }
  /** @param {string} wait */
  const idle = (wait) => {
    const node = make("i", "bv-cell bv-swatch");
    node.dataset.wait = wait;
    return node;
  };
  const commit = make("i", "bv-cell bv-swatch bv-commit");
  commit.dataset.n = "1";
  /** @param {string} name */
  const bar = (name) => make("i", `bv-swatch bv-bar bv-${name}`);
  const texts = make("button", "", "whole texts");
  texts.type = "button";
  texts.setAttribute("aria-pressed", "false");
  texts.addEventListener("click", () => {
    const isOn = texts.getAttribute("aria-pressed") !== "true";
    texts.setAttribute("aria-pressed", String(isOn));
    onTexts(isOn);
  });
  element.replaceChildren(
    item(swatches, "tokens per forward"),
    item(commit, "commit"),
    item(idle("block"), "waits for the block"),
    item(idle("finished"), "finished"),
    item(bar("committed"), "cache committed"),
    item(bar("filling"), "filling"),
    item(bar("scratch"), "scratch"),
    texts,
  );
}

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

// The two figures, made by the server (app/batch_charts.py): here they get their colours and a node.
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
