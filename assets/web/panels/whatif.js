// The panel "Another τ": every recorded pass evaluated with another threshold. The result is exact up to the first pass
// that differs, and an estimate after that.

import { button, group, isModified, indexForKey, make, put, targetOf } from "../core/dom.js";
import { settingsOf } from "../core/folds.js";
import { counted, figure, short, whole } from "../core/words.js";
import { endIds, proposalRows } from "../folds/proposals.js";
import { cellOf, whatIf } from "../folds/whatif.js";
import { subject } from "./shown.js";

let numSliders = 0; // makes the ids of the sliders unique

export class WhatIfPanel {
  /** @type {Lane} */
  lane;
  /** @type {WhatIf | null} */
  result;
  /** @type {string} */
  key;
  /** @type {number | null} */
  frame;
  /** @type {boolean} */
  isEnded;
  /** @type {boolean} */
  isOwn;

  static id = "whatif";

  static title = "Another τ";

  /**
   * @param {HTMLElement} element
   * @param {View} view
   */
  constructor(element, view) {
    this.view = view;
    this.tau = NaN; // the other threshold; NaN until there is a lane
    element.classList.add("rv-wi");
    numSliders += 1;
    const id = `rv-wi-${numSliders}`;
    this.slider = make("input", { type: "range", min: 0, max: 1, step: 0.01, id });
    this.slider.addEventListener("input", () => {
      this.tau = Number(this.slider.value);
      this.isOwn = true;
      view.lens.set(this.tau); // after the run, the text above is shown with this threshold too
      this.later();
    });
    this.output = make("output", "rv-num");
    this.run = button("rv-wi-run", "", () => this.ask());
    this.none = make("p", "rv-wi-none");
    this.tableHead = make("tr");
    this.tableBody = make("tbody");
    this.says = ["divergence", "lossless", "taken", "left"].map((key) => make("p", `rv-wi-say rv-wi-${key}`));
    this.strip = new WhatIfStrip({ point: (i) => this.point(i), choose: (i) => view.choose(this.lane, i) });
    this.detail = make("p", { class: "rv-wi-detail rv-num", "aria-live": "polite" });
    this.legendText = make("span");
    const cell = { class: "rv-wi-cell rv-wi-a2 rv-wi-b4 rv-wi-differs", "data-now": 4, "aria-hidden": true };
    const table = make("table", "rv-wi-table", make("thead", "", this.tableHead), this.tableBody);
    this.body = make(
      "div",
      "rv-wi-body",
      make("div", "rv-wi-knob", make("label", { for: id }, "another τ"), this.slider, this.output, this.run),
      make("div", "rv-wi-text", table, ...this.says),
      make("p", "rv-wi-legend", make("span", cell, "2"), this.legendText),
      this.strip.element,
      this.detail,
    );
    element.append(this.none, this.body);
  }

  // Draws in the next frame, so that fast dragging of the slider draws only once per frame.
  later() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  draw() {
    const lane = subject(this.view);
    const sentence = nothing(lane);
    put(this.none, sentence);
    this.none.hidden = !sentence;
    this.body.hidden = Boolean(sentence);
    if (sentence) return;
    if (lane !== this.lane) this.start(lane);
    if (this.view.lens.isOn) this.follow(this.view.lens.tau);
    const result = this.evaluate(lane);
    this.write(lane, result);
    const focus = this.view.focus;
    const chosen = focus.lane === lane ? focus.step : -1;
    this.strip.draw(result.cells, result.first, chosen);
    if (this.strip.at < 0) this.point(-1);
  }

  /**
   * Resets the panel for another lane, and sets an informative threshold unless the visitor has chosen one.
   * @param {Lane} lane
   */
  start(lane) {
    this.lane = lane;
    this.result = null;
    this.key = "";
    this.strip.clear();
    if (!this.isOwn) this.tau = informativeTau(lane, endIds(this.view.run.lanes));
    this.slider.value = String(this.tau);
  }

  /**
   * Sets the slider to the lens's threshold after another control has changed it.
   * @param {number} tau
   */
  follow(tau) {
    this.isOwn = true;
    this.tau = tau;
    if (this.slider.value !== String(tau)) this.slider.value = String(tau);
  }

  /** @param {Lane} lane */
  evaluate(lane) {
    const ends = endIds(this.view.run.lanes);
    const key = `${this.tau} ${[...ends].join()}`;
    const known = key === this.key ? this.result : null;
    if (known && known.cells.length === lane.steps.length && this.isEnded === Boolean(lane.end)) return known;
    const result = whatIf(lane, this.tau, ends, known ? known.cells : []);
    this.result = result;
    this.key = key;
    this.isEnded = Boolean(lane.end);
    return result;
  }

  /**
   * @param {Lane} lane
   * @param {WhatIf} result
   */
  write(lane, result) {
    const { tau } = this;
    put(this.output, short(tau));
    this.slider.setAttribute("aria-valuetext", `τ ${short(tau)}`);
    put(this.run, `Run it with τ ${short(tau)}`);
    this.run.hidden = !this.view.canAsk("run");
    const taus = new Set(lane.steps.map((step) => step.settings && step.settings.tau));
    const asRun =
      taus.size > 1 ? "actual run, τ changed during the run" : `actual run, τ ${short(settingsOf(lane).tau)}`;
    fillRow(this.tableHead, "th", ["", asRun, `with τ ${short(tau)}`]);
    const rows = tableRows(result);
    while (this.tableBody.rows.length > rows.length) this.tableBody.deleteRow(-1);
    rows.forEach((row, i) => fillRow(this.tableBody.rows[i] || this.tableBody.insertRow(), "td", row));
    const texts = [divergenceText(result, tau), losslessText(result), takenText(result), leftText(result)];
    texts.forEach((text, i) => put(this.says[i], text));
    put(
      this.legendText,
      `One cell per pass. Top: ${result.drafts ? "drafts" : "accepted tokens"} in this run; bottom: with τ ${short(tau)}, if different. ` +
        "Thick: first difference. Dashed: estimate.",
    );
  }

  /**
   * Describes the pass under the pointer or the arrow keys or, if index is -1, the pass that panels show.
   * @param {number} index
   */
  point(index) {
    const { lane, result } = this;
    const at = index >= 0 ? index : this.strip.chosen;
    const cell = result && result.cells[at];
    if (!cell) return put(this.detail, "");
    const step = lane.steps[at];
    const rows = proposalRows(lane, at, endIds(this.view.run.lanes)).slice(cell.isLossless ? step.count : 0);
    return put(this.detail, cellText(lane, cell, rows, this.tau));
  }

  ask() {
    const { block_size, lossless, metric } = settingsOf(this.lane);
    this.view.ask("run", { settings: { tau: this.tau, block_size, lossless, metric } });
  }
}

/**
 * Returns a threshold to start with. Tries thresholds from 0.8 downwards if the run's τ is above 0.5, otherwise from
 * 0.8 upwards, and returns the first one that would have changed a pass; 0.8 if there is none.
 * @param {Lane} lane
 * @param {Set<number>} ends
 */
function informativeTau(lane, ends) {
  const taus = settingsOf(lane).tau > 0.5 ? [0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0] : [0.8, 0.9, 0.95, 0.99, 1];
  /** @param {number} tau */
  const differs = (tau) =>
    lane.steps.some(({ index }) => {
      const { now, then } = cellOf(lane, index, tau, ends);
      return now !== then;
    });
  return (lane.end && taus.find(differs)) ?? taus[0];
}

/** @param {Lane} lane */
function nothing(lane) {
  if (!lane.settings || !lane.steps.length) return "No pass to show yet.";
  if (lane.method === "speculative" || lane.method === "block_diffusion")
    return "With another τ this method would have continued from other tokens, so its passes cannot be re-evaluated. Run MARS instead.";
  return lane.facts.obeys.includes("tau")
    ? ""
    : `${lane.isAr ? "Plain AR writes one token per pass" : `${lane.facts.title} does not use τ`}, whatever τ is. Run MARS to try another τ.`;
}

/**
 * @param {HTMLTableRowElement} row
 * @param {"th" | "td"} tag
 * @param {string[]} texts
 */
function fillRow(row, tag, texts) {
  texts.forEach((text, i) => {
    const name = i === 0 ? "th" : tag;
    if (!row.children[i]) row.append(make(name, i ? "rv-num" : ""));
    put(row.children[i], text);
  });
}

const [WIDE, HIGH] = [23, 44]; // size of a cell with its gap in pixels, as in whatif.css
const SIGHT = 236; // maximum height of the strip in pixels
const MARGIN = 1; // number of rows drawn above and below the visible ones

/** @type {(cell: WhatIfCell, num: number) => number} */
const ramp = (cell, num) => Math.min(5, cell.isLossless ? num + 1 : num);

// A strip with one cell per pass: at the top the number of tokens that it accepted, below the number that it would
// accept. The strip is a single tab stop; arrow keys move between cells. Only visible rows are in the document, so that
// dragging the slider stays fast for thousands of passes.
class WhatIfStrip {
  /** @type {WhatIfCell[]} */
  cells = [];
  /** @type {number} */
  chosen;
  /** @type {number} */
  top;
  /** @type {number} */
  first;
  /** @type {number} */
  columns;
  /** @type {number} */
  at;
  /** @type {Map<number, HTMLElement>} */
  nodes = new Map(); // elements of the cells in and near the visible rows, by index

  /**
   * point: called with the index of the pass that the visitor points at, -1 for none. choose: called with the index of
   * the pass that the visitor chooses.
   * @param {{ point(index: number): void, choose(index: number): void }} given
   */
  constructor({ point, choose }) {
    this.report = { point, choose };
    this.inner = make("div", "rv-wi-cells");
    const label = "One cell per pass. Left and right arrows move between them, Enter selects one.";
    this.element = group("rv-wi-strip", label, this.inner);
    this.clear();
    this.listen();
  }

  clear() {
    this.inner.replaceChildren();
    this.nodes.clear();
    Object.assign(this, { cells: [], first: -1, chosen: -1, at: -1, top: 0 });
    this.element.scrollTop = 0;
  }

  /**
   * Draws the strip. first: index of the first pass with a different result. chosen: index of the pass that panels
   * show.
   * @param {WhatIfCell[]} cells
   * @param {number} first
   * @param {number} chosen
   */
  draw(cells, first, chosen) {
    const hadSight = this.isInSight(this.chosen);
    Object.assign(this, { cells, first, chosen });
    this.columns ||= this.measure();
    this.inner.style.height = `${Math.ceil(cells.length / this.columns) * HIGH}px`;
    if (hadSight) this.reveal(chosen);
    this.show();
  }

  measure() {
    return Math.max(1, Math.floor(this.inner.clientWidth / WIDE));
  }

  /** @param {number} index */
  row(index) {
    return Math.floor(index / this.columns) * HIGH;
  }

  /** @param {number} index */
  isInSight(index) {
    if (index < 0) return true;
    return this.row(index) >= this.top && this.row(index) + HIGH <= this.top + SIGHT;
  }

  /**
   * Scrolls a cell into view without moving the page.
   * @param {number} index
   */
  reveal(index) {
    if (index < 0 || this.isInSight(index)) return;
    this.top = Math.max(0, this.row(index) - SIGHT / 2);
    this.element.scrollTop = this.top;
  }

  // Adds the cells near the visible rows and removes the others.
  show() {
    const from = Math.max(0, Math.floor(this.top / HIGH) - MARGIN) * this.columns;
    const until = Math.min(this.cells.length, (Math.ceil((this.top + SIGHT) / HIGH) + MARGIN) * this.columns);
    for (const [index, node] of this.nodes) {
      if (index >= from && index < until) continue;
      node.remove();
      this.nodes.delete(index);
    }
    for (let index = from; index < until; index += 1) this.cell(index);
  }

  /** @param {number} index */
  cell(index) {
    let node = this.nodes.get(index);
    if (!node) {
      node = make("span");
      node.rvForward = index;
      this.nodes.set(index, node);
      this.inner.append(node);
    }
    const cell = this.cells[index];
    const { then, now } = cell;
    const marks = [
      then !== now && "rv-wi-differs",
      this.first >= 0 && index > this.first && "rv-wi-guess",
      index === this.first && "rv-wi-first",
      index === this.chosen && "rv-wi-chosen",
      index === this.at && "rv-wi-at",
    ].filter(Boolean);
    const transform = `translate(${(index % this.columns) * WIDE}px, ${this.row(index)}px)`;
    const state = `${then} ${now} ${transform} ${marks.join(" ")}`;
    if (node.rvState === state) return;
    node.rvState = state;
    node.className = `rv-wi-cell rv-wi-a${ramp(cell, then)} rv-wi-b${ramp(cell, now)} ${marks.join(" ")}`;
    node.style.transform = transform;
    node.textContent = String(then);
    node.dataset.now = then === now ? "" : String(now);
  }

  listen() {
    const { element } = this;
    /** @param {Event} event */
    const indexOf = (event) => targetOf(event).rvForward ?? -1;
    element.addEventListener(
      "scroll",
      () => {
        this.top = element.scrollTop;
        this.show();
      },
      { passive: true },
    );
    // Uses pointermove, because pointerover would also report cells that scroll past while the pointer does not move.
    element.addEventListener("pointermove", (event) => this.point(indexOf(event)));
    element.addEventListener("pointerleave", () => this.point(-1));
    element.addEventListener("blur", () => this.point(-1));
    element.addEventListener("click", (event) => {
      if (indexOf(event) >= 0) this.report.choose(indexOf(event));
    });
    element.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resized()).observe(element);
  }

  resized() {
    const columns = this.inner.clientWidth ? this.measure() : this.columns;
    if (columns === this.columns) return;
    this.columns = columns;
    if (this.cells.length) this.draw(this.cells, this.first, this.chosen);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (isModified(event)) return;
    const last = this.cells.length - 1;
    const from = this.at >= 0 ? this.at : this.chosen;
    const across = { ArrowRight: from + 1, ArrowLeft: from - 1, Home: 0, End: last };
    const down = { ArrowDown: from + this.columns, ArrowUp: from - this.columns };
    const target = indexForKey(event, { ...across, ...down, Enter: from }, last);
    if (target === null) return;
    event.stopPropagation();
    if (event.key === "Enter") {
      if (from >= 0) this.report.choose(from);
      return;
    }
    this.reveal(target);
    this.point(target);
  }

  /** @param {number} index */
  point(index) {
    if (index === this.at) return;
    this.at = index;
    this.show();
    this.report.point(index);
  }
}

/** @type {(given: { forwards: number }, tokens: number) => string} */
const perForward = ({ forwards }, tokens) => (forwards ? figure(tokens / forwards) : "–");

/**
 * Returns the rows of the table. A row has a label, the value in the run, and the value with the other τ.
 * @param {WhatIf} result
 */
function tableRows(result) {
  const { first, exact, whole: all, drafts, cells } = result;
  const loop = all.forwards < cells.length ? " up to the loop" : "";
  if (first < 0)
    return [
      [
        `tokens per pass, ${counted(all.forwards, "pass", "passes")}${loop}, exact`,
        perForward(all, all.then),
        perForward(all, all.now),
      ],
    ];
  const span = exact.forwards === 1 ? "pass 1" : `passes 1 to ${whole(exact.forwards)}`;
  const rows = [
    [`tokens per pass, ${span}: exact`, perForward(exact, exact.then), perForward(exact, exact.now)],
    [
      `tokens per pass, ${all.forwards === 1 ? "one pass" : `all ${whole(all.forwards)} passes`}${loop}: estimate`,
      perForward(all, all.then),
      `≈ ${perForward(all, all.now)}`,
    ],
  ];
  if (drafts) {
    rows.push([
      "drafts confirmed by AR: estimate",
      `${whole(drafts.agreedThen)} of ${whole(drafts.then)}`,
      `≈ ${whole(drafts.agreedNow)} of ${whole(drafts.now)}`,
    ]);
  }
  return rows;
}

/**
 * Describes where the first difference is, and which part of the result is exact.
 * @param {WhatIf} result
 * @param {number} tau
 */
function divergenceText(result, tau) {
  const { first, cells } = result;
  if (!cells.length) return "No pass to show yet.";
  const named = `τ\u00a0=\u00a0${short(tau)}`;
  const same = result.drafts ? "drafted the same" : "accepted the same tokens";
  if (first < 0) return `With ${named} every pass would have ${same}: an identical run.`;
  const cell = cells[first];
  const [did, would] = cell.isLossless ? ["drafted", "have drafted"] : ["accepted", "have accepted"];
  const difference = `First difference at pass ${whole(first + 1)}: it ${did} ${cell.then} and would ${would} ${cell.now}.`;
  const reason = cell.isLossless
    ? "later passes would have started from different tokens"
    : "later text would have been different";
  return `${difference} Results are exact up to there; ${reason}, so later passes are estimated one by one.`;
}

/** @param {WhatIf} given */
function losslessText({ drafts }) {
  if (!drafts) return "";
  return "In a lossless run τ does not change the text, only how many tokens are drafted. The cells count drafts.";
}

/**
 * Describes the proposals that only the other τ would have accepted, and whether the run wrote the same tokens later.
 * @param {WhatIf} given
 */
function takenText({ taken, drafts }) {
  if (!taken.num) return "";
  const [word, then] = drafts ? ["undrafted proposal", "drafted"] : ["rejected token", "accepted"];
  const other = taken.other ? ` and another token in place of ${whole(taken.other)}` : "";
  const unknown = taken.unknown
    ? `; ${whole(taken.unknown)} cannot be compared, because the text before them changed`
    : "";
  return `More tokens in ${counted(taken.forwards, "pass", "passes")}: ${counted(taken.num, word)} would have been ${then}; the run wrote ${whole(taken.same)} of them anyway${other}${unknown}.`;
}

/** @param {WhatIf} given */
function leftText({ left, drafts }) {
  if (!left.num) return "";
  const [word, then] = drafts ? ["draft", "would not have been made"] : ["accepted token", "would have been rejected"];
  const unknown = drafts ? "" : "; AR's choice there is unknown";
  const wrong = left.checked
    ? `; AR would have chosen another token for ${whole(left.wrong)} of the ${whole(left.checked)} that can be compared`
    : unknown;
  return `Fewer tokens in ${counted(left.forwards, "pass", "passes")}: ${counted(left.num, word)} ${then}${wrong}.`;
}

/**
 * Describes one pass: what it accepted, what it would accept with τ, and what the run wrote at the positions that
 * differ.
 * @param {Lane} lane
 * @param {WhatIfCell} cell
 * @param {ProposalRow[]} rows
 * @param {number} tau
 */
export function cellText(lane, cell, rows, tau) {
  const [did, would] = cell.isLossless ? ["drafted", "would draft"] : ["accepted", "would accept"];
  const begin = `Pass ${whole(cell.index + 1)} ${did} ${cell.then}`;
  if (cell.now === cell.then) return `${begin}; τ ${short(tau)} ${would} the same number.`;
  if (cell.now < cell.then) {
    const lost = rows
      .slice(cell.now, cell.then)
      .map((row) => `“${lane.tokenName(row.id)}”`)
      .join(" ");
    return `${begin}; τ ${short(tau)} ${would} ${cell.now}, without ${lost}.`;
  }
  const more = rows
    .slice(cell.then, cell.now)
    .map((row) => `“${lane.tokenName(row.id)}” ${outcome(lane, row)}`)
    .join(", ");
  return `${begin}; τ ${short(tau)} ${would} ${cell.now}, also ${more}.`;
}

/**
 * @param {Lane} lane
 * @param {ProposalRow} row
 */
function outcome(lane, row) {
  if (row.verdict === "same") return "(the run wrote it too)";
  if (row.verdict === "other" && row.token) return `(the run wrote “${lane.tokenName(row.token.id)}”)`;
  return row.verdict === "unwritten" ? "(nothing was written there)" : "(cannot be compared)";
}
