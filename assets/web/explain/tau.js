// The picture of a recorded pass and a threshold: how many of its proposals would be accepted.

import { button, make, put } from "../core/dom.js";
import { probability, short } from "../core/words.js";
import { acceptPrefix } from "../folds/whatif.js";

/**
 * Returns how many proposals of a pass are accepted with threshold `tau`.
 * @param {Step} step
 * @param {number} tau
 */
const numTaken = ({ proposals }, tau) =>
  acceptPrefix(
    proposals.map(([, confidence]) => confidence),
    tau,
  );

export class TauPicture {
  /** @type {{ row: HTMLElement, fate: HTMLElement }[]} */
  rows;
  /** @type {number} */
  index;

  /** @param {Lane} lane */
  constructor(lane) {
    this.lane = lane;
    this.element = make("div", "ex-bars");
  }

  /**
   * Draws the proposals of a pass and which of them are accepted with threshold `tau`. Returns the number of accepted
   * ones.
   * @param {number} index
   * @param {number} tau
   */
  show(index, tau) {
    if (index !== this.index) this.build(index);
    const count = numTaken(this.lane.steps[index], tau);
    this.rows.forEach(({ row, fate }, i) => {
      row.className = `ex-prop ${i < count ? "ex-taken" : i === count ? "ex-stopper" : "ex-behind"}`;
      put(fate, i === 0 ? "✓ always" : i < count ? "✓" : i === count ? `✗ below τ` : "✗ dropped");
    });
    this.element.style.setProperty("--tau", String(tau));
    return count;
  }

  /** @param {number} index */
  build(index) {
    this.index = index;
    this.rows = this.lane.steps[index].proposals.map(([id, confidence]) => {
      const fate = make("span", "ex-fate");
      const row = make(
        "div",
        "ex-prop",
        make("code", "", this.lane.tokenName(id)),
        make("span", "ex-track", make("i", { style: `width: ${100 * Math.max(confidence, 0)}%` })),
        make("span", "ex-p", probability(confidence)),
        fate,
      );
      return { row, fate };
    });
    const axis = make("div", "ex-axis", make("span", "ex-track", make("i", "ex-tau")));
    this.element.replaceChildren(...this.rows.map(({ row }) => row), axis);
  }
}

export class TauView {
  /**
   * @param {HTMLElement} element
   * @param {Lane} lane
   */
  constructor(element, lane) {
    this.steps = lane.steps;
    this.picture = new TauPicture(lane);
    this.index = instructiveStep(lane.steps);
    this.said = make("p", { class: "ex-said ex-big", "aria-live": "polite" });
    this.where = make("span", "ex-where");
    this.range = make("input", { type: "range", min: 0, max: 1, step: 0.01, value: 0.95, name: "tau" });
    this.range.addEventListener("input", () => this.draw());
    this.value = make("output");
    const knob = make("label", "ex-knob", make("span", "", "Threshold τ"), this.range, this.value);
    const pick = make(
      "div",
      "ex-controls",
      button({ "aria-label": "Previous pass" }, "‹", () => this.move(-1)),
      button({ "aria-label": "Next pass" }, "›", () => this.move(1)),
      this.where,
    );
    element.append(make("div", "ex-knobs", knob, pick), this.said, this.picture.element);
    this.draw();
  }

  /** @param {number} by */
  move(by) {
    const { length } = this.steps;
    this.index = (this.index + by + length) % length;
    this.draw();
  }

  draw() {
    const tau = Number(this.range.value);
    put(this.value, short(tau));
    const count = this.picture.show(this.index, tau);
    const { length } = this.steps[this.index].proposals;
    put(this.where, `pass ${this.index + 1} of ${this.steps.length}`);
    put(this.said, `${count} of ${length} accepted`);
  }
}

const TRIED = [0.5, 0.8, 0.95, 1]; // thresholds that visitors are likely to try

/**
 * Returns the index of the pass that shows the effect of τ best: the one with the greatest difference in accepted
 * tokens between the thresholds in TRIED.
 * @param {Step[]} steps
 */
function instructiveStep(steps) {
  const scores = steps.map((step) => new Set(TRIED.map((tau) => numTaken(step, tau))).size);
  return scores.indexOf(Math.max(...scores));
}
