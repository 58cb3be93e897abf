// The load view: sends the received lines to the table and the charts, and draws at most once per frame.

import { fill, find, make, put, shape, toggle } from "../../core/dom.js";
import { PhaseView, mountOf } from "../../core/line_view.js";
import { counted, environment, figure, joined, short, whole } from "../../core/words.js";
import { LOAD_ORDER } from "../../core/table.js";
import { arrivalsText, begun, loadFinding, rangeOver, summaryOf, take } from "../../folds/load.js";
import { LoadPlots } from "./plots.js";

class LoadView extends PhaseView {
  static what = "This load";
  static empty =
    "Press Run: requests arrive without waiting for each other, and this machine answers them with each method in turn, in several rounds. The table and the charts show waits and throughput. One slot stays free for other users, whose runs slow this down.";

  /** @type {LoadModel} */
  model;
  /** @type {number} */
  shown;

  /** @param {ConstructorParameters<typeof PhaseView>} given */
  constructor(...given) {
    super(...given);
    const { root } = this;
    this.env = find(root, ".lv-env");
    this.arrivals = find(root, ".lv-arrivals");
    this.isFull = false;
    this.table = new Table(find(root, ".lv-table"));
    this.plots = new LoadPlots(root, find(root, ".lv-charts"));
    this.rounds = make("span");
    const words = WORDS.flatMap(([term, meaning]) => [make("dt", "", term), make("dd", "", meaning)]);
    const help = make(
      "details",
      "lv-help",
      make("summary", "", "What the figures mean"),
      make("dl", "lv-words", ...words),
    );
    find(root, ".lv-under").replaceChildren(
      this.rounds,
      toggle("All figures", false, (isOn) => {
        this.isFull = isOn;
        root.classList.toggle("lv-full", isOn);
        this.schedule();
      }),
      help,
    );
    this.watchTheme();
    this.clear();
  }

  clear() {
    this.start({ run: "", question: "compare", kind: "", ways: [], seconds: 0, requests: 0, budget: null });
    this.showOpening();
  }

  /** @param {LoadHead} head */
  start(head) {
    this.model = begun(head);
    this.table.build(this.model);
    this.begin(head);
    this.schedule();
  }

  /**
   * @param {string} tag
   * @param {any} data
   */
  line(tag, data) {
    if (tag === "status") this.say(data);
    else take(this.model, tag, data);
  }

  draw() {
    const { model } = this;
    this.root.dataset.run = String(model.head.run);
    this.root.dataset.ways = String(model.ways.length);
    this.root.classList.toggle("lv-bare", !model.ways.some(({ ticks, points }) => ticks.length || points.length));
    if (!model.ways.length) return;
    this.table.draw(model);
    this.showFinding(loadFinding(model));
    put(this.arrivals, this.asked());
    put(this.rounds, roundsText(Math.max(...model.ways.map(({ ended }) => ended.length))));
    put(this.env, environment(model.about));
    this.plots.renew(model, this.isFull);
  }

  get heading() {
    const { head, ways } = this.model;
    const on = head.question === "curve" ? "at rising rates" : `on the same ${counted(head.requests, "request")}`;
    return ways.length ? `${counted(ways.length, "method")} ${on}` : "";
  }

  // Describes the arrivals, and how many requests are answered at the same time.
  asked() {
    const { about, head } = this.model;
    const places = about ? `At most ${whole(about.places)} are answered at once; the others wait for a slot.` : "";
    return joined(arrivalsText(head), places).replace(" · ", " ");
  }

  recolour() {
    this.plots.draw();
  }
}

export const mountLoadView = mountOf(LoadView);

/** @param {number} num rounds that have ended */
const roundsText = (num) =>
  num > 1 ? `Medians of ${num} rounds with the same arrivals; below them, the lowest and highest.` : "";

/** @type {[term: string, meaning: string][]} */
const WORDS = [
  ["Throughput", "tokens per second of all requests together."],
  ["First token", "time from the arrival of a request to its first token, including its wait for a slot."],
  ["Time per token", "time between one token and the next, after the first token."],
  [
    "Median, p99",
    "half of the requests took at most the median, 99 of 100 at most p99. With few requests, p99 is nearly the slowest.",
  ],
  ["Same as AR", "the share of tokens that plain AR also wrote, in the same order; counted after timing."],
  ["Answered", "requests that were completed; those still running 20 seconds after the last arrival are dropped."],
  ["In time", "half of the requests have a deadline; this is the share of them that met it."],
];

/** @type {LoadColumn[]} */
const COLUMNS = [
  { name: "throughput", unit: "tokens/s", of: (tick) => tick.tokens_per_second },
  { name: "first token", unit: "median, s", of: (tick) => tick.ttft?.p50 },
  { name: "whole answer", unit: "median, s", of: (tick) => tick.latency?.p50 },
  { name: "tokens", unit: "per pass", of: (tick) => tick.tpf, hasRange: false },
  { name: "same as AR", unit: "% of tokens", cell: (way) => agreed(way.agreement) },
  { name: "first token", unit: "p99, s", of: (tick) => tick.ttft?.p99, isMore: true },
  { name: "whole answer", unit: "p99, s", of: (tick) => tick.latency?.p99, isMore: true },
  { name: "time per token", unit: "median, ms", of: (tick) => tick.tpot && 1000 * tick.tpot.p50, isMore: true },
  {
    name: "answered",
    unit: "requests",
    cell: (_, tick) => `${whole(tick.num_done)} of ${whole(tick.num_arrived)}`,
    isMore: true,
  },
  { name: "answered", unit: "requests/s", of: (tick) => tick.requests_per_second, isMore: true },
  {
    name: "in time",
    unit: "%",
    cell: (_, tick) => (tick.in_time === null ? "–" : short(100 * tick.in_time, 0)),
    isMore: true,
  },
];

/** @param {LoadColumn} column */
const kindOf = ({ isMore }) => (isMore ? "lv-more" : "");

/** @param {LoadAgreement | null} agreement */
function agreed(agreement) {
  if (!agreement || agreement.share === null) return "–";
  const percent = agreement.share === 1 ? "100" : short(Math.floor(1000 * agreement.share) / 10, 1);
  return agreement.sampled ? `${percent} of ${agreement.num_requests}` : percent;
}

class Table {
  /** @type {Map<string, HTMLTableRowElement>} */
  rows = new Map();

  /** @param {HTMLElement} element */
  constructor(element) {
    const heads = COLUMNS.map((column) => {
      const attributes = { scope: "col", class: kindOf(column), "data-column": `${column.name}, ${column.unit}` };
      return make("th", attributes, column.name, make("small", "", column.unit));
    });
    this.body = make("tbody");
    const head = make("thead", "", make("tr", "", make("th", { scope: "col" }, "method"), ...heads));
    element.replaceChildren(make("table", "", head, this.body));
  }

  /** @param {LoadModel} model */
  build({ ways }) {
    this.rows = new Map(ways.map((way) => [way.name, rowOf(way)]));
    fill(this.body, [...this.rows.values()]);
  }

  /** @param {LoadModel} model */
  draw({ ways }) {
    for (const way of ways) {
      const tick = summaryOf(way);
      const row = this.rows.get(way.name);
      if (!tick || !row) continue;
      row.dataset.arrived = String(tick.num_arrived);
      COLUMNS.forEach(({ of, cell, hasRange = true }, i) => {
        const [value, below] = /** @type {HTMLElement[]} */ ([...row.cells[i + 1].children]);
        put(value, cell ? cell(way, tick) : figure(of?.(tick) ?? NaN));
        const range = of && hasRange ? rangeOver(way.ended, of) : null;
        put(below, range ? range.map(figure).join("–") : "");
      });
    }
  }
}

/** @param {LoadWay} way */
function rowOf(way) {
  const index = LOAD_ORDER.indexOf(way.name);
  const attributes = { class: "lv-key", viewBox: "0 0 28 8", "aria-hidden": true, "data-place": index };
  const key = shape("svg", attributes, shape("path", { d: "M0 4H28" }));
  const cells = COLUMNS.map((column) => {
    const attributes = { class: `rv-num ${kindOf(column)}`, "data-column": `${column.name}, ${column.unit}` };
    return make("td", attributes, make("span", "lv-value", "–"), make("small", "lv-range"));
  });
  return make("tr", { "data-way": way.name }, make("th", { scope: "row" }, key, way.title), ...cells);
}
