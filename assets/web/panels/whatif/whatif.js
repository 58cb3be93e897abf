// The panel "Another τ": every recorded forward judged again under a threshold of the visitor's choice; exact up to the
// first forward that differs, an estimate behind it; one press runs it for real.

import { short } from "../../core/words.js";
import { settingsOf } from "../../core/folds.js";
import { make, put } from "../../core/dom.js";
import { endIds, proposalRows } from "../folds/why.js";
import { cellOf, whatIf } from "../folds/whatif.js";
import { subject } from "../shown.js";
import { WhatIfStrip } from "./whatif_strip.js";
import { cellText, divergenceText, leftText, losslessText, tableRows, takenText } from "./whatif_words.js";

let counted = 0;

export class WhatIfPanel {
  /** @type {Lane} */
  lane;
  /** @type {HTMLInputElement} */
  slider;
  /** @type {WhatIf | null} */
  found;
  /** @type {string} */
  key;
  /** @type {View} */
  view;
  /** @type {number} */
  tau;
  /** @type {HTMLOutputElement} */
  output;
  /** @type {HTMLButtonElement} */
  run;
  /** @type {HTMLElement} */
  legendText;
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
    this.tau = NaN; // until a lane is there
    element.classList.add("rv-wi");
    this.none = make("p", "rv-wi-none");
    this.body = make("div", "rv-wi-body");
    this.table = make("table", "rv-wi-table");
    this.tableHead = make("tr");
    this.tableBody = make("tbody");
    const top = make("thead");
    top.append(this.tableHead);
    this.table.append(top, this.tableBody);
    this.says = ["divergence", "lossless", "taken", "left"].map((key) => make("p", `rv-wi-say rv-wi-${key}`));
    this.strip = new WhatIfStrip({ point: (i) => this.point(i), choose: (i) => view.choose(this.lane, i) });
    this.detail = make("p", "rv-wi-detail rv-num");
    this.detail.setAttribute("aria-live", "polite");
    const text = make("div", "rv-wi-text");
    text.append(this.table, ...this.says);
    this.body.append(this.knob(), text, this.legend(), this.strip.element, this.detail);
    element.append(this.none, this.body);
  }

  knob() {
    counted += 1;
    const row = make("div", "rv-wi-knob");
    const label = make("label", "", "another τ");
    this.slider = make("input");
    Object.assign(this.slider, { type: "range", min: "0", max: "1", step: "0.01", id: `rv-wi-${counted}` });
    label.htmlFor = this.slider.id;
    this.output = make("output", "rv-num");
    this.slider.addEventListener("input", () => {
      this.tau = Number(this.slider.value);
      this.isOwn = true;
      this.view.lens.set(this.tau); // the text above is seen through it, once the run is over
      this.later();
    });
    this.run = make("button", "rv-wi-run");
    this.run.type = "button";
    this.run.addEventListener("click", () => this.ask());
    row.append(label, this.slider, this.output, this.run);
    return row;
  }

  legend() {
    const legend = make("p", "rv-wi-legend");
    const cell = make("span", "rv-wi-cell rv-wi-a2 rv-wi-b4 rv-wi-differs", "2");
    cell.dataset.now = "4";
    cell.setAttribute("aria-hidden", "true");
    this.legendText = make("span");
    legend.append(cell, this.legendText);
    return legend;
  }

  // Once a frame, however fast the slider is dragged.
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
    if (lane !== this.lane) this.take(lane);
    if (this.view.lens.isOn) this.follow(this.view.lens.tau);
    const found = this.fold(lane);
    this.write(lane, found);
    const focus = this.view.focus;
    const chosen = focus.lane === lane ? focus.step : -1;
    this.strip.draw(found.cells, found.first, chosen);
    if (this.strip.at < 0) this.point(-1);
  }

  /**
   * Another lane: begin with a threshold that says something, until the visitor has chosen one.
   * @param {Lane} lane
   */
  take(lane) {
    this.lane = lane;
    this.found = null;
    this.key = "";
    this.strip.clear();
    if (!this.isOwn) this.tau = telling(lane, endIds(this.view.run.lanes));
    this.slider.value = String(this.tau);
  }

  /**
   * The threshold through which the text is seen, wherever it was set.
   * @param {number} tau
   */
  follow(tau) {
    this.isOwn = true;
    this.tau = tau;
    if (this.slider.value !== String(tau)) this.slider.value = String(tau);
  }

  /** @param {Lane} lane */
  fold(lane) {
    const ends = endIds(this.view.run.lanes);
    const key = `${this.tau} ${[...ends].join()}`;
    const known = key === this.key ? this.found : null;
    if (known && known.cells.length === lane.steps.length && this.isEnded === Boolean(lane.end)) return known;
    const found = whatIf(lane, this.tau, ends, known ? known.cells : []);
    this.found = found;
    this.key = key;
    this.isEnded = Boolean(lane.end);
    return found;
  }

  /**
   * @param {Lane} lane
   * @param {WhatIf} found
   */
  write(lane, found) {
    const { tau } = this;
    put(this.output, short(tau));
    this.slider.setAttribute("aria-valuetext", `τ ${short(tau)}`);
    put(this.run, `Run it with τ ${short(tau)}`);
    this.run.hidden = !this.view.canAsk("run");
    const taus = new Set(lane.steps.map((step) => step.settings && step.settings.tau));
    const asRun = taus.size > 1 ? "as run, τ moved" : `as run, τ ${short(settingsOf(lane).tau)}`;
    fillRow(this.tableHead, "th", ["", asRun, `with τ ${short(tau)}`]);
    const rows = tableRows(found);
    while (this.tableBody.rows.length > rows.length) this.tableBody.deleteRow(-1);
    rows.forEach((row, i) => fillRow(this.tableBody.rows[i] || this.tableBody.insertRow(), "td", row));
    const texts = [divergenceText(found, tau), losslessText(found), takenText(found), leftText(found)];
    texts.forEach((text, i) => put(this.says[i], text));
    put(
      this.legendText,
      `a forward: above ${found.drafts ? "its drafts" : "the tokens it took"}, below those with τ ${short(tau)} where they differ; ` +
        "thick frame: the first difference; dashed: estimate",
    );
  }

  /**
   * The forward under the pointer or the arrow keys, else the one that the panels speak of.
   * @param {number} index
   */
  point(index) {
    const { lane, found } = this;
    const at = index >= 0 ? index : this.strip.chosen;
    const cell = found && found.cells[at];
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
 * A threshold to begin with: the next bolder one (or more careful, after a bold run) that would have changed anything.
 * @param {Lane} lane
 * @param {Set<number>} ends
 */
function telling(lane, ends) {
  const taus = settingsOf(lane).tau > 0.5 ? [0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0] : [0.8, 0.9, 0.95, 0.99, 1];
  /** @param {number} tau */
  const differs = (tau) =>
    lane.steps.some((_, index) => {
      const cell = cellOf(lane, index, tau, ends);
      return cell.now !== cell.then;
    });
  return (lane.end && taus.find(differs)) ?? taus[0];
}

/** @param {Lane} lane */
function nothing(lane) {
  if (!lane.settings || !lane.steps.length) return "No forward is there yet.";
  if (lane.method === "speculative" || lane.method === "block_diffusion")
    return "Under another τ other tokens would have been fed, and nobody knows what would have followed: run MARS to judge its forwards.";
  return lane.facts.obeys.includes("tau")
    ? ""
    : `${lane.isAr ? "Plain AR takes one token per forward" : `${lane.facts.title} takes what it takes`} whatever τ is: run MARS to judge its forwards under another τ.`;
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
