// The load view: passes the feed to the table, the charts and the simulated day; draws once a frame.

import { fill, find, make, put, shape } from "../../core/dom.js";
import { PhaseView, mountOf } from "../../core/line_view.js";
import { counted, environment, figure, short, whole } from "../../core/words.js";
import { LOAD_ORDER } from "../../core/table.js";
import { begun, enough, rangeOver, saturation, summaryOf, take } from "../../folds/load.js";
import { LoadPlots } from "./plots.js";

const EMPTY =
  "Press Run: requests arrive as from visitors, without waiting for each other, and this machine answers them with each method in turn, in several rounds. The table and the charts show how long they wait and how much is written meanwhile. One slot stays free for other users, whose runs slow this down.";

class LoadView extends PhaseView {
  static what = "This load";

  /** @type {LoadModel} */
  model;
  /** @type {number} */
  shown;

  /** @param {ConstructorParameters<typeof PhaseView>} given */
  constructor(...given) {
    super(...given);
    const { root } = this;
    this.env = find(root, ".lv-env");
    this.day = find(root, ".lv-day");
    this.table = new Table(find(root, ".lv-table"));
    this.plots = new LoadPlots(root, find(root, ".lv-charts"));
    const words = WORDS.flatMap(([term, meaning]) => [make("dt", "", term), make("dd", "", meaning)]);
    find(root, ".lv-words").replaceChildren(...words);
    this.watchTheme();
    this.clear();
  }

  clear() {
    this.start({ run: "", question: "compare", kind: "", ways: [], seconds: 0, requests: 0, budget: null });
    this.say({ text: EMPTY, kind: "empty" });
  }

  /** @param {LoadHead} head */
  start(head) {
    this.model = begun(head);
    this.table.build(this.model);
    this.day.hidden = true;
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
    put(this.env, this.place());
    if (model.day && this.day.hidden) this.showDay(model.day);
    this.plots.renew(model);
  }

  // Describes the machine and the arrivals; for a curve, where the machine is saturated.
  place() {
    const { about, head, ways } = this.model;
    if (!about) return "";
    const asked = `${head.kind} arrivals, ${counted(head.requests, "request")} in ${figure(head.seconds)} s, ${counted(head.rounds ?? 1, "round")}`;
    const found = ways
      .filter((way) => way.points.length)
      .map(({ title, points }) => {
        const { rate, isFound } = saturation(points);
        return isFound
          ? `${title} saturates at ${figure(rate)} requests/s`
          : `${title} kept up with ${figure(rate)} requests/s: raise the rate to saturate it`;
      });
    return [...found, asked, `${counted(about.places, "place")}`, environment(about)].join(" · ");
  }

  /** @param {LoadDay} day */
  showDay(day) {
    const best = enough(day.fleets);
    const said = best
      ? `${counted(best.num_machines, "machine")} like this one would do: p99 ${figure(best.p99)} s; more would hardly be faster.`
      : "";
    const text =
      `Computed, not served, from what was just measured (${day.title}): a forward takes ${figure(1000 * day.alone)} ms alone and ` +
      `${figure(1000 * day.full)} ms with ${day.places} requests, reading of prompts included. The busiest hour brings ` +
      `${figure(day.busiest)} requests/s, three times what one machine answers. Hours are shortened to ${figure(day.hour_seconds)} s: ` +
      "where machines are too few, a real day would wait longer still.";
    this.day.replaceChildren(
      make("h3", "", "A simulation: a day of such requests"),
      make("p", "lv-said", said),
      make("p", "", text),
      this.plots.day.frame,
    );
    this.day.hidden = false;
  }

  recolour() {
    this.plots.draw();
  }
}

export const mountLoadView = mountOf(LoadView);

/** @type {[term: string, meaning: string][]} */
const WORDS = [
  ["Throughput", "tokens written per second, of all requests together."],
  ["Time to first token", "from the moment a request arrives, its wait for a place included."],
  ["Time per token", "from then on, between one token and the next."],
  [
    "p50 and p99",
    "half of the requests took at most the first, 99 of 100 at most the second; of few requests p99 is nearly the slowest.",
  ],
  [
    "Rounds",
    "every method gets the same arrivals again; the table has medians, and beneath them the lowest and highest.",
  ],
  ["Agreement", "the share of tokens that plain AR wrote too, in the same order; counted when the clock has ended."],
  ["Cut", "requests that still go on 20 seconds after the last arrival are not waited for."],
  ["In budget", "every second request wants its whole answer in so many seconds: the share that got it."],
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
  ["per forward", "tokens", (_, tick) => (tick.tpf === null ? "–" : figure(tick.tpf))],
  ["agreement", "with AR, %", (way) => agreed(way.agreement)],
  ["in budget", "%", (_, tick) => (tick.in_time === null ? "–" : short(100 * tick.in_time, 0))],
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
