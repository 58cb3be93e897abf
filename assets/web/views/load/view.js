// The load view: binds the feed to the table, the charts and the simulated day; draws once a frame.

import { find, make, put } from "../../core/dom.js";
import { LineView, mountView } from "../../core/line_view.js";
import { counted, environment, figure } from "../../core/words.js";
import { begun, enough, saturation, take } from "./folds.js";
import { Plots } from "./plots.js";
import { Table, buildWords } from "./table.js";

const EMPTY =
  "Run lets requests arrive as visitors would, without waiting for each other, and answers them on this machine by each way in turn. The table and the charts say how long they wait and how much is written meanwhile. One place stays free for other visitors; what they run slows this down.";

class LoadView extends LineView {
  /** @type {LoadModel} */
  model;
  /** @type {number} */
  shown;

  /**
   * @param {HTMLElement} root
   * @param {(run: string) => Promise<string>} missed
   */
  constructor(root, missed) {
    super(root, missed);
    this.status = find(root, ".lv-status");
    this.env = find(root, ".lv-env");
    this.live = find(root, ".rv-live");
    this.day = find(root, ".lv-day");
    this.table = new Table(find(root, ".lv-table"));
    this.plots = new Plots(root, find(root, ".lv-charts"));
    buildWords(find(root, ".lv-words"));
    this.watchTheme();
    this.clear();
  }

  /** @param {string} [text] */
  fail(text = "This load cannot be drawn: a line of it is broken.") {
    this.say({ text, kind: "error" });
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

  /** @param {Note} given */
  say({ text, kind }) {
    put(this.status, text);
    this.root.dataset.phase = kind;
    if (!["empty", "running"].includes(kind)) put(this.live, text);
  }

  draw() {
    const { model } = this;
    this.root.dataset.run = String(model.head.run);
    this.root.dataset.ways = String(model.ways.length);
    if (!model.ways.length) return;
    this.table.draw(model);
    put(this.env, this.place());
    if (model.day && this.day.hidden) this.showDay(model.day);
    this.plots.show(model);
  }

  // On what it runs, with what arrivals; of a curve where the machine is saturated.
  place() {
    const { about, head, ways } = this.model;
    if (!about) return "";
    const asked = `${head.kind} arrivals, ${counted(head.requests, "request")} in ${figure(head.seconds)} s`;
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
      this.plots.day.holder,
    );
    this.day.hidden = false;
  }

  recolour() {
    this.plots.draw();
  }
}

/**
 * @param {HTMLElement} element
 * @param {{ value: string }} props
 * @param {(name: string, changed: () => void) => void} watch
 * @param {(run: string) => Promise<string>} [missed]
 */
export const mountLoadView = (element, props, watch, missed) => mountView(LoadView, element, props, watch, missed);
