// The figures of each way as a table, and the words that they are called by.

import { fill, make, put, shape } from "../../core/dom.js";
import { figure, short, whole } from "../../core/words.js";
import { ORDER } from "./folds.js";

/** @type {[term: string, meaning: string][]} */
const WORDS = [
  ["Throughput", "tokens written per second, of all requests together."],
  ["Time to first token", "from the moment a request arrives, its wait for a place included."],
  ["Time per token", "from then on, between one token and the next."],
  [
    "p50 and p99",
    "half of the requests took at most the first, 99 of 100 at most the second; of few requests p99 is nearly the slowest.",
  ],
  ["Agreement", "the share of tokens that plain AR wrote too, in the same order; counted when the clock has ended."],
  ["Cut", "requests that still go on 20 seconds after the last arrival are not waited for."],
  ["In budget", "every second request wants its whole answer in so many seconds: the share that got it."],
];

/** @type {[head: string, unit: string, cell: (way: LoadWay, tick: LoadTick) => string][]} */
const COLUMNS = [
  ["throughput", "tokens/s", (_, tick) => figure(tick.tokens_per_second)],
  ["answered", "of all", (_, tick) => `${whole(tick.num_done)} of ${whole(tick.num_arrived)}`],
  ["answered", "requests/s", (_, tick) => figure(tick.requests_per_second)],
  ["first token", "s, p50 · p99", (_, tick) => pair(tick.ttft, 1)],
  ["time per token", "ms, p50 · p99", (_, tick) => pair(tick.tpot, 1000)],
  ["whole answer", "s, p50 · p99", (_, tick) => pair(tick.latency, 1)],
  ["per forward", "tokens", (_, tick) => (tick.tpf === null ? "–" : figure(tick.tpf))],
  ["agreement", "with AR, %", (way) => agreed(way.agreement)],
  ["in budget", "%", (_, tick) => (tick.in_time === null ? "–" : short(100 * tick.in_time, 0))],
];

/**
 * @param {{ p50: number, p99: number } | null} spread
 * @param {number} unit
 */
const pair = (spread, unit) => (spread ? `${figure(unit * spread.p50)} · ${figure(unit * spread.p99)}` : "–");

/** @param {LoadAgreement | null} found */
function agreed(found) {
  if (!found || found.share === null) return "–";
  const percent = found.share === 1 ? "100" : short(Math.floor(1000 * found.share) / 10, 1);
  return found.sampled ? `${percent} of ${found.num_requests}` : percent;
}

/** @param {HTMLElement} list */
export function buildWords(list) {
  list.replaceChildren(...WORDS.flatMap(([term, meaning]) => [make("dt", "", term), make("dd", "", meaning)]));
}

export class Table {
  /** @param {HTMLElement} element */
  constructor(element) {
    const table = make("table");
    const head = make("thead");
    const row = make("tr");
    row.append(headOf("way", ""), ...COLUMNS.map(([name, unit]) => headOf(name, unit)));
    head.append(row);
    this.body = make("tbody");
    table.append(head, this.body);
    element.replaceChildren(table);
    /** @type {Map<string, HTMLTableRowElement>} */
    this.rows = new Map();
  }

  /** @param {LoadModel} model */
  build({ ways }) {
    this.rows = new Map(ways.map((way) => [way.name, rowOf(way)]));
    fill(this.body, [...this.rows.values()]);
  }

  /** @param {LoadModel} model */
  draw({ ways }) {
    for (const way of ways) {
      const tick = way.ticks.at(-1);
      const row = this.rows.get(way.name);
      if (!tick || !row) continue;
      row.dataset.arrived = String(tick.num_arrived);
      COLUMNS.forEach(([, , cell], i) => put(row.cells[i + 1], cell(way, tick)));
    }
  }
}

/**
 * @param {string} name
 * @param {string} unit
 */
function headOf(name, unit) {
  const cell = make("th", "", name);
  cell.scope = "col";
  if (unit) cell.append(make("small", "", unit));
  return cell;
}

/** @param {LoadWay} way */
function rowOf(way) {
  const row = make("tr");
  row.dataset.way = way.name;
  const head = make("th");
  head.scope = "row";
  const key = shape("svg", "lv-key", { viewBox: "0 0 28 8", "aria-hidden": "true" });
  key.append(shape("path", "", { d: "M0 4H28" }));
  key.dataset.place = String(ORDER.indexOf(way.name));
  head.append(key, way.title);
  row.append(head, ...COLUMNS.map(() => make("td", "rv-num", "–")));
  return row;
}
