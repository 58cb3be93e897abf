// One recorded forward and a threshold: how many of its proposals would be taken.

import { make, put } from "../core/dom.js";
import { probability, short } from "../core/words.js";
import { acceptPrefix } from "../folds/whatif.js";

export class TauPicture {
  /** @type {{ row: HTMLElement, fate: HTMLElement }[]} */
  rows;
  /** @type {number} */
  index;

  /** @param {SlotRun} run */
  constructor(run) {
    this.run = run;
    this.element = make("div", "ex-bars");
    this.line = make("i", "ex-tau");
  }

  /**
   * Draws a forward's proposals; `tau` says which of them are taken.
   * @param {number} index
   * @param {number} tau
   */
  show(index, tau) {
    if (index !== this.index) this.build(index);
    const { predicted } = this.run.forwards[index];
    const count = acceptPrefix(
      predicted.map((p) => p.confidence),
      tau,
    );
    this.rows.forEach(({ row, fate }, i) => {
      row.className = `ex-prop ${i < count ? `ex-taken ex-n${Math.min(count, 5)}` : i === count ? "ex-stopper" : "ex-behind"}`;
      put(fate, i === 0 ? "✓ always" : i < count ? "✓" : i === count ? `✗ below τ` : "✗ behind it");
    });
    this.element.style.setProperty("--tau", String(tau));
    return count;
  }

  /** @param {number} index */
  build(index) {
    this.index = index;
    const { predicted } = this.run.forwards[index];
    this.rows = predicted.map(({ id, confidence }) => {
      const row = make("div", "ex-prop");
      const track = make("span", "ex-track");
      const bar = track.appendChild(make("i", ""));
      bar.style.width = `${100 * Math.max(confidence, 0)}%`;
      const fate = make("span", "ex-fate");
      row.append(
        make("code", "", this.run.lane.tokenName(id)),
        track,
        make("span", "ex-p", probability(confidence)),
        fate,
      );
      return { row, fate };
    });
    const axis = make("div", "ex-axis");
    const track = axis.appendChild(make("span", "ex-track"));
    track.append(this.line);
    this.element.replaceChildren(...this.rows.map(({ row }) => row), axis);
  }
}

export class TauView {
  /** @type {HTMLInputElement} */
  slider;
  /** @type {HTMLOutputElement} */
  output;

  /**
   * @param {HTMLElement} element
   * @param {SlotRun} run
   */
  constructor(element, run) {
    this.run = run;
    this.picture = new TauPicture(run);
    this.index = tellingForward(run);
    this.said = make("p", "ex-said ex-big");
    this.said.setAttribute("aria-live", "polite");
    this.where = make("span", "ex-where");
    element.append(this.controls(), this.said, this.picture.element);
    this.draw();
  }

  controls() {
    const box = make("div", "ex-knobs");
    const row = make("label", "ex-knob");
    this.slider = make("input");
    Object.assign(this.slider, { type: "range", min: 0, max: 1, step: 0.01, value: 0.95, name: "tau" });
    this.output = make("output");
    this.slider.addEventListener("input", () => this.draw());
    row.append(make("span", "", "Threshold τ"), this.slider, this.output);
    const pick = make("div", "ex-controls");
    for (const { text, label, by } of [
      { text: "‹", label: "Forward before", by: -1 },
      { text: "›", label: "Next forward", by: 1 },
    ]) {
      const button = make("button", "", text);
      button.type = "button";
      button.setAttribute("aria-label", label);
      button.addEventListener("click", () => this.move(by));
      pick.append(button);
    }
    pick.append(this.where);
    box.append(row, pick);
    return box;
  }

  /** @param {number} by */
  move(by) {
    const { length } = this.run.forwards;
    this.index = (this.index + by + length) % length;
    this.draw();
  }

  /** @param {number} tau */
  setTau(tau) {
    this.slider.value = String(tau);
    this.draw();
  }

  draw() {
    const tau = Number(this.slider.value);
    put(this.output, short(tau));
    const count = this.picture.show(this.index, tau);
    const { length } = this.run.forwards[this.index].predicted;
    put(this.where, `forward ${this.index + 1} of ${this.run.forwards.length}`);
    put(this.said, `${count} of ${length} accepted`);
  }
}

const TRIED = [0.5, 0.8, 0.95, 1]; // what a visitor tries first, and the tour

/**
 * The forward on which tau has most to say: the most different counts.
 * @param {SlotRun} run
 */
function tellingForward(run) {
  /** @param {SlotForward} given */
  const counts = ({ predicted }) =>
    new Set(
      TRIED.map((tau) =>
        acceptPrefix(
          predicted.map((p) => p.confidence),
          tau,
        ),
      ),
    ).size;
  const scores = run.forwards.map(counts);
  return scores.indexOf(Math.max(...scores));
}
