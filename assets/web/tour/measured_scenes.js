// Two stops of the tour that show what was measured: requests under load, by plain AR and by MARS, and the frontier of ways
// to decode. Both come along as data; the load can be measured anew by the Load lab of the page that the tour lies over.

import { find, make, put, tabOf } from "../core/dom.js";
import { readValue } from "../core/wire.js";
import { counted, figure, joined } from "../core/words.js";
import { came } from "../explain/explain.js";
import { Chart, marksOf } from "../charts/frontier.js";
import { begun, summaryOf, take } from "../folds/load.js";

const LAB = "#load .mars-race";
const PATIENCE = 5; // seconds for the Load lab to begin
const LATE = "The Load lab did not begin within five seconds, so this is the recording.";
const MISSING = "What was measured for this stop did not come with the page.";

// A bar for each way, as long as half of the requests waited for their whole answer; beneath it how long they waited for its
// first token, how long 99 of 100 did, and what was written meanwhile.
export class LoadScene {
  /** @type {Beat[]} */
  beats = [{}];

  /** @param {HTMLElement} element */
  constructor(element) {
    this.rows = make("div", "pr-loads");
    this.note = make("p", "pr-mark");
    element.append(this.rows, this.note);
    /** @type {number | null} */
    this.frame = null;
    this.recorded = recordedLoad();
    if (!this.recorded) element.replaceChildren(make("p", "pr-figureline", MISSING));
    else this.draw(this.recorded, `Recorded ${this.recorded.note}`);
  }

  get model() {
    return this.recorded?.model.about?.checkpoint || "";
  }

  get canLive() {
    return Boolean(this.recorded && tabOf("Load lab"));
  }

  beat() {}

  /**
   * @param {{ model: LoadModel }} given
   * @param {string} note
   */
  draw({ model }, note) {
    const ways = model.ways.filter(({ ticks }) => ticks.length);
    const most = Math.max(1e-9, ...ways.map((way) => summaryOf(way)?.latency?.p50 ?? 0));
    this.rows.replaceChildren(...ways.map((way) => loadRow(way, most)));
    const { kind, requests, seconds } = model.head;
    const rounds = Math.max(...ways.map(({ ended }) => ended.length));
    const median = rounds > 1 ? `medians of ${rounds} rounds` : "";
    put(this.note, joined(note, `${counted(requests, "request")} in ${figure(seconds)} s, ${kind} arrivals`, median));
  }

  // The Load lab behind the tour measures; what it has found so far is drawn here.
  goLive() {
    if (this.frame !== null) return;
    tabOf("Load lab")?.click();
    const before = labModel()?.head.run;
    const asked = performance.now();
    let isPressed = false;
    const look = () => {
      this.frame = requestAnimationFrame(look);
      const press = document.getElementById("load-run");
      if (press && document.querySelector(LAB)?.lineView && !isPressed) {
        isPressed = true;
        press.click();
      }
      const model = labModel();
      if (!model || model.head.run === before || !model.ways.some(({ ticks }) => ticks.length)) {
        if (performance.now() - asked > 1000 * PATIENCE) this.fail();
        return;
      }
      this.note.dataset.kind = "live";
      this.draw({ model }, "Live, on this machine");
    };
    put(this.note, "The Load lab is asked…");
    look();
  }

  fail() {
    this.leave();
    this.note.dataset.kind = "fallback";
    put(this.note, LATE);
  }

  leave() {
    if (this.frame === null) return;
    cancelAnimationFrame(this.frame);
    this.frame = null;
    document.getElementById("load-stop")?.click();
    tabOf("Live")?.click();
  }
}

/** @returns {LoadModel | undefined} */
const labModel = () => /** @type {{ model?: LoadModel } | undefined} */ (document.querySelector(LAB)?.lineView)?.model;

/**
 * @param {LoadWay} way
 * @param {number} most seconds of any way
 */
function loadRow(way, most) {
  const tick = /** @type {LoadTick} */ (summaryOf(way));
  const { ttft, latency, tpf } = tick;
  const half = latency ? `${figure(latency.p50)} s for a whole answer` : "nothing answered yet";
  const share = { style: `width: ${(100 * (latency?.p50 ?? 0)) / most}%` };
  const more = joined(
    ttft ? `first token after ${figure(ttft.p50)} s` : "",
    latency ? `99 of 100 within ${figure(latency.p99)} s` : "",
    `${figure(tick.tokens_per_second)} tokens per second`,
    tpf ? `${figure(tpf)} per pass` : "",
  );
  const rate = make("p", "pr-rate", make("i", share), make("b", "", half));
  return make(
    "div",
    { class: "pr-load", "data-way": way.name },
    make("h3", "", way.title),
    rate,
    make("p", "pr-waits", more),
  );
}

/** @returns {{ model: LoadModel, note: string } | null} */
function recordedLoad() {
  const value = came().runs.load;
  if (!value) return null;
  const { head, lines } = readValue(value);
  const model = begun(/** @type {LoadHead} */ (/** @type {unknown} */ (head)));
  for (const [tag, text] of lines) if (tag !== "status") take(model, tag, JSON.parse(text));
  return { model, note: String(head.recorded) };
}

// The frontier: each way that was measured, by tokens per pass and by how often its answers are plain AR's own.
export class FrontierScene {
  /** @type {Beat[]} */
  beats = [{}];

  /** @param {HTMLElement} element */
  constructor(element) {
    const set = came().frontier;
    this.model = set?.checkpoint || "";
    if (!set) {
      element.append(make("p", "pr-figureline", MISSING));
      return;
    }
    const place = make("figure", "fv-chart pr-frontier");
    element.append(place, make("p", "pr-mark", `Measured beforehand: ${set.title}`));
    this.chart = new Chart(place, { open() {}, point() {} });
    this.chart.draw({ marks: marksOf(set), own: null, curves: [], axis: "answers that are AR's own, %" });
    find(place, ".fv-plot").setAttribute("aria-label", "Answers that are AR's own, against tokens per pass");
  }

  beat() {}

  leave() {}
}
