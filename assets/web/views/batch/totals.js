// The figures of a batch (large for the first method, with the second method's figures below), the line about hardware,
// and the legend. The server computed all numbers from the trace.

import { Plots, chartFrame } from "../../charts/plots.js";
import { coloursOf } from "../../core/colours.js";
import { find, make, put, toggle } from "../../core/dom.js";
import { bigFigure, drawSpeedup } from "../race/figures.js";
import { counted, environment, figure, memory, whole } from "../../core/words.js";
import { steady } from "./side.js";

const SPEED = "relative speed";
const BIG = [
  ["forwards", "forward passes", ""],
  ["tpf", "tokens per row and pass", ""],
  ["speedup", SPEED, ""],
  ["perSecond", "tokens per second", "tok/s"],
];
const SMALL = [
  ["idle", "idle rows"],
  ["cache", "peak cache"],
];
/** @type {Record<string, string>} */
const HINTS = {
  speedup:
    "Tokens per second divided by those of the second method in the same round; prompt processing is excluded. Median, lowest and highest of the rounds.",
  tpf: "Tokens divided by row passes: one for each row of each forward pass, idle rows and commits included. Repetition loops are left out.",
  idle: "Share of row passes that produced no token.",
  cache: "Keys and values reserved for the largest group of rows.",
};

export class Totals {
  /** @type {Record<string, ReturnType<typeof bigFigure>>} */
  big;
  /** @type {Side[]} */
  sides;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.element = find(root, ".rv-figures");
    this.env = find(root, ".rv-env");
    this.small = Object.fromEntries(SMALL.map(([key]) => [key, make("dd")]));
  }

  /** @param {Side[]} sides */
  build(sides) {
    this.sides = sides;
    const big = BIG.filter(([key]) => key !== "speedup" || sides.length > 1);
    this.big = Object.fromEntries(big.map(([key, name, unit]) => [key, bigFigure(key, name, unit)]));
    for (const [key, { list }] of Object.entries(this.big)) list.title = HINTS[key] || "";
    const rows = SMALL.flatMap(([key, name]) => [make("dt", { title: HINTS[key] || "" }, name), this.small[key]]);
    const lists = Object.values(this.big).map(({ list }) => list);
    this.element.replaceChildren(...lists, make("dl", "rv-small rv-num", ...rows));
    put(this.env, "");
  }

  update() {
    const [first, second] = this.sides.map((side) => side.totals);
    const { sides } = this;
    const { rounds } = sides[0];
    const speedup = rounds ? steady(rounds) : null;
    if (this.big.speedup) {
      if (speedup) drawSpeedup(this.big.speedup, speedup, SPEED);
      else this.set("speedup", "–", "once both methods have run");
    }
    /** @type {(key: string, text: (totals: BatchTotals) => string, unit?: string) => void} */
    const show = (key, text, unit = "") =>
      this.set(key, first ? text(first) : "–", second ? `${brief(sides[1])}: ${text(second)}${unit}` : "");
    const isBusy = speedup?.kind === "busy";
    if (isBusy) this.set("perSecond", "–", "");
    else
      this.set(
        "perSecond",
        first ? rateText(sides[0]) : "–",
        second ? `${brief(sides[1])}: ${rateText(sides[1])}` : "",
      );
    const isHidden = isBusy && this.root.dataset.recordedRun === "true"; // too uncertain to show
    for (const key of ["speedup", "perSecond"]) if (this.big[key]) this.big[key].list.hidden = isHidden;
    this.big.perSecond.list.title = sides.map(spreadText).filter(Boolean).join("; ");
    show("tpf", (totals) => figure(totals.effective_tpf) + loopText(totals));
    show(
      "forwards",
      (t) => whole(t.counted_forwards) + (t.num_commits ? ` (${counted(t.num_commits, "commit")})` : ""),
    );
    /** @type {(key: string, text: (totals: BatchTotals) => string) => void} */
    const both = (key, text) =>
      put(this.small[key], bothText([first, second].flatMap((totals) => (totals ? [text(totals)] : []))));
    both("idle", (t) => `${percent(t.idle_share)} %`);
    both("cache", (t) => memory(t.peak_cache_bytes));
    put(this.env, environment(sides.find((side) => side.header)?.header));
  }

  /**
   * @param {string} key
   * @param {string} text
   * @param {string} sub
   */
  set(key, text, sub) {
    put(this.big[key].number, text);
    put(this.big[key].sub, sub);
  }
}

/**
 * Joins the two methods' texts for a figure with "and"; equal texts are shown once.
 * @param {string[]} texts
 */
const bothText = (texts) => [...new Set(texts)].join(" and ") || "–";

/** @param {BatchTotals} totals */
const loopText = ({ num_looped: num = 0 }) => (num ? ` (without the loops of ${counted(num, "row")})` : "");

/**
 * Returns tokens per second: the median of the rounds, or the current value if no round has ended yet.
 * @param {Side} side
 */
const rateText = ({ rounds, totals }) => figure(rounds ? rounds.rate[0] : (totals?.tokens_per_second ?? NaN));

/** @param {Side} side */
function spreadText(side) {
  if (!side.rounds) return "";
  const [, low, high] = side.rounds.rate;
  return `${brief(side)}: median of ${side.rounds.rounds} rounds (${figure(low)} to ${figure(high)} tok/s)`;
}

/** @param {Side} side */
const brief = (side) => side.title.replace("MARS, ", "");

/** @param {number} share */
const percent = (share) => (share ? figure(100 * share) : "0");

/**
 * Returns whether rows wait for each other with this method.
 * @param {string} method
 */
const isIdling = (method) => method === "block" || method === "uncached";

/**
 * Builds the legend of the colours and marks that these methods draw.
 * @param {HTMLElement} element
 * @param {string[]} methods
 * @param {boolean} isWhole whether whole texts are shown
 * @param {(isOn: boolean) => void} onTexts
 */
export function buildLegend(element, methods, isWhole, onTexts) {
  const hasBlock = methods.includes("block");
  /** @type {(node: Node, text: string) => HTMLElement} */
  const item = (node, text) => make("span", "bv-key", node, make("span", "", text));
  const swatches = [1, 2, 3, 4, 5].map((n) =>
    make("i", { class: "bv-cell bv-swatch", "data-n": n }, n === 5 ? "5+" : String(n)),
  );
  /** @param {string} wait */
  const idle = (wait) => make("i", { class: "bv-cell bv-swatch", "data-wait": wait });
  /** @param {string} name */
  const bar = (name) => make("i", `bv-swatch bv-bar bv-${name}`);
  const marks = [item(make("span", "rv-keys", ...swatches), "tokens in a pass")];
  if (hasBlock)
    marks.push(
      item(make("i", { class: "bv-cell bv-swatch bv-commit", "data-n": 1 }), "stores a full block"),
      item(idle("block"), "waiting for the other rows' blocks"),
    );
  if (methods.some(isIdling)) marks.push(item(idle("finished"), "finished, waiting"));
  const cache = make(
    "span",
    "bv-keys",
    "KV cache:",
    item(bar("committed"), "stored"),
    item(bar("filling"), hasBlock ? "added, or in its block" : "added"),
    item(bar("scratch"), "temporary (drafts, masks)"),
  );
  element.replaceChildren(...marks, cache, toggle("Whole texts", isWhole, onTexts));
}

const CHARTS = [
  ["time", "Tokens of all rows by decoding time"],
  ["forwards", "Tokens in each pass, all rows"],
];
const KEYS = [
  ["ramp-4", "tokens"],
  ["mars", "tokens of a pass that stores a block"],
  ["warm", "below: rows waiting for a block"],
  ["bar-1", "below: finished rows, waiting"],
];

// The two charts of a batch. The server builds them (app/throughput/batch.py); this class adds the page's colours and
// draws them.
export class BatchPlots extends Plots {
  /** @type {Record<string, Figure> | null} */
  figures = null;

  /** @param {HTMLElement} root */
  constructor(root) {
    const keys = make("span", "bv-chartkeys");
    for (const [colour, name] of KEYS)
      keys.append(make("span", { class: "bv-chartkey", style: `--key: var(--rv-${colour})` }, name));
    const charts = CHARTS.map(([key, title]) => chartFrame(key, title, ...(key === "forwards" ? [keys] : [])));
    super(root, find(root, ".bv-charts"), charts, {
      figure: (key) => this.figures && themed(this.figures[key], root),
      rest: "lanes and figures are",
    });
    this.keys = keys;
    this.element.hidden = true;
  }

  /**
   * @param {Record<string, Figure> | null} figures
   * @param {string[]} methods
   */
  renew(figures, methods) {
    this.figures = figures;
    this.keys.hidden = !methods.some(isIdling);
    this.element.hidden = !figures;
    if (figures) this.show();
  }
}

/**
 * Returns a chart from the server in the view's colours.
 * @param {Figure} figure
 * @param {HTMLElement} root
 * @returns {Figure}
 */
function themed(figure, root) {
  const style = getComputedStyle(root);
  const { card, line, ink, muted, isCoarse } = coloursOf(root);
  const { data, layout } = coloured(figure, style);
  const hoverlabel = { bgcolor: card, bordercolor: line, font: { color: ink } };
  const modebar = { bgcolor: "rgba(0,0,0,0)", color: muted };
  return { data, layout: { ...layout, dragmode: isCoarse ? false : "zoom", hoverlabel, modebar } };
}

/**
 * Replaces every text "@name" by the value of the style sheet variable --rv-name.
 * @param {any} value
 * @param {CSSStyleDeclaration} style
 * @returns {any}
 */
function coloured(value, style) {
  if (typeof value === "string")
    return value.startsWith("@") ? style.getPropertyValue(`--rv-${value.slice(1)}`).trim() || value : value;
  if (Array.isArray(value)) return value.map((item) => coloured(item, style));
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item, style)]));
  return value;
}
