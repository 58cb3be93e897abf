// The load view: passes the feed to the table and the charts; draws once a frame.

import { fill, find, make, put, shape } from "../../core/dom.js";
import { PhaseView, mountOf } from "../../core/line_view.js";
import { counted, environment, figure, short, whole } from "../../core/words.js";
import { LOAD_ORDER } from "../../core/table.js";
import { begun, loadFinding, rangeOver, summaryOf, take } from "../../folds/load.js";
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
    this.table = new Table(find(root, ".lv-table"));
    this.plots = new LoadPlots(root, find(root, ".lv-charts"));
    const words = WORDS.flatMap(([term, meaning]) => [make("dt", "", term), make("dd", "", meaning)]);
    find(root, ".lv-words").replaceChildren(...words);
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
    this.say({ text: "", kind: "waiting" });
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
    if (!model.ways.length) return;
    this.table.draw(model);
    put(this.finding, loadFinding(model));
    put(this.env, this.place());
    this.plots.renew(model);
  }

  // Describes the machine and the arrivals.
  place() {
    const { about, head } = this.model;
    if (!about) return "";
    const asked = `${head.kind} arrivals, ${counted(head.requests, "request")} in ${figure(head.seconds)} s, ${counted(head.rounds ?? 1, "round")}`;
    return [asked, `${counted(about.places, "slot")}`, environment(about)].join(" · ");
  }

  recolour() {
    this.plots.draw();
  }
}

export const mountLoadView = mountOf(LoadView);

/** @type {[term: string, meaning: string][]} */
const WORDS = [
  ["Throughput", "tokens per second of all requests together."],
  ["Time to first token", "from the arrival of a request, including its wait for a slot."],
  ["Time per token", "after the first, between one token and the next."],
  [
    "p50 and p99",
    "half of the requests took at most p50, 99 of 100 at most p99. With few requests, p99 is nearly the slowest.",
  ],
  [
    "Rounds",
    "every method gets the same traffic in each round. The table has medians, with the lowest and highest below them.",
  ],
  ["Agreement", "the share of tokens that plain AR also wrote, in the same order; counted after timing."],
  ["Dropped", "requests still running 20 seconds after the last arrival."],
  ["In time", "half of the requests have a deadline; the share that met it."],
];

/**
 * of: the figure whose range over the rounds is shown below.
 * @type {[head: string, unit: string, cell: (way: LoadWay, tick: LoadTick) => string, of?: (tick: LoadTick) => number | undefined, scale?: number][]}
 */
const COLUMNS = [
  ["throughput", "tokens/s", (_, tick) => figure(tick.tokens_per_second), (tick) => tick.tokens_per_second],
  ["answered", "of all", (_, tick) => `${whole(tick.num_done)} of ${whole(tick.num_arrived)}`],
  ["answered", "requests/s", (_, tick) => figure(tick.requests_per_second), (tick) => tick.requests_per_second],
  ["first token", "s, p50 · p99", (_, tick) => pair(tick.ttft, 1), (tick) => tick.ttft?.p50],
  ["time per token", "ms, p50 · p99", (_, tick) => pair(tick.tpot, 1000), (tick) => tick.tpot?.p50, 1000],
  ["whole answer", "s, p50 · p99", (_, tick) => pair(tick.latency, 1), (tick) => tick.latency?.p50],
  ["per pass", "tokens", (_, tick) => (tick.tpf === null ? "–" : figure(tick.tpf))],
  ["agreement", "with AR, %", (way) => agreed(way.agreement)],
  ["in time", "%", (_, tick) => (tick.in_time === null ? "–" : short(100 * tick.in_time, 0))],
];

/** @type {(spread: { p50: number, p99: number } | null, unit: number) => string} */
const pair = (spread, unit) => (spread ? `${figure(unit * spread.p50)} · ${figure(unit * spread.p99)}` : "–");

/** @param {LoadAgreement | null} found */
function agreed(found) {
  if (!found || found.share === null) return "–";
  const percent = found.share === 1 ? "100" : short(Math.floor(1000 * found.share) / 10, 1);
  return found.sampled ? `${percent} of ${found.num_requests}` : percent;
}

class Table {
  /** @type {Map<string, HTMLTableRowElement>} */
  rows = new Map();

  /** @param {HTMLElement} element */
  constructor(element) {
    const heads = COLUMNS.map(([name, unit]) => make("th", { scope: "col" }, name, make("small", "", unit)));
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
      COLUMNS.forEach(([, , cell, of, unit = 1], i) => {
        const place = row.cells[i + 1];
        put(/** @type {HTMLElement} */ (place.firstElementChild), cell(way, tick));
        const range = of ? rangeOver(way.ended, of) : null;
        const said = range ? range.map((end) => figure(unit * end)).join("–") : "";
        put(/** @type {HTMLElement} */ (place.lastElementChild), said);
      });
    }
  }
}

/** @param {LoadWay} way */
function rowOf(way) {
  const place = LOAD_ORDER.indexOf(way.name);
  const given = { class: "lv-key", viewBox: "0 0 28 8", "aria-hidden": true, "data-place": place };
  const key = shape("svg", given, shape("path", { d: "M0 4H28" }));
  const cells = COLUMNS.map(() => make("td", "rv-num", make("span", "lv-value", "–"), make("small", "lv-range")));
  return make("tr", { "data-way": way.name }, make("th", { scope: "row" }, key, way.title), ...cells);
}
