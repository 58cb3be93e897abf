// τ as a lens: while no run is going on, a threshold shows the finished text in the groups that it would have made.
// Recolours the MARS text and says in a caption what of it is exact. While text streams τ steers, and the lens is off.

import { make, put } from "../../core/dom.js";
import { mainLane } from "../../core/folds.js";
import { regrouped } from "../folds/lens.js";
import { whatIf } from "../folds/whatif.js";
import { endIds } from "../folds/why.js";
import { LensText } from "./lens_text.js";
import { lensWords } from "./lens_words.js";

export class Lens {
  /** @type {LensText | null} */
  text;

  /**
   * @param {HTMLElement} element
   * @param {View} view
   */
  constructor(element, view) {
    this.element = element;
    this.view = view;
    this.tau = NaN; // no lens
    this.drawn = NaN;
    this.text = null;
    this.caption = make("p", "rv-lens-say");
    this.caption.setAttribute("aria-live", "polite");
    this.back = make("button", "", "Show it as it was written");
    this.back.type = "button";
    this.back.addEventListener("click", () => this.set(NaN));
    element.append(this.caption, this.back);
  }

  get isOn() {
    return !Number.isNaN(this.tau);
  }

  /** @param {number} tau NaN takes the lens away */
  set(tau) {
    const { run } = this.view;
    const isOver = run && run.lanes.length && run.lanes.every((lane) => lane.end && lane.steps.length);
    this.tau = isOver && mainLane(run).facts.obeys.includes("tau") && tau >= 0 && tau <= 1 ? tau : NaN;
    this.view.schedule();
  }

  // For another run.
  clear() {
    this.text = null;
    this.tau = NaN;
    this.drawn = NaN;
    this.element.hidden = true;
  }

  draw() {
    if (Object.is(this.tau, this.drawn)) return;
    this.drawn = this.tau;
    this.element.hidden = !this.isOn;
    if (!this.isOn) {
      this.text?.clear();
      return;
    }
    const { run } = this.view;
    const lane = mainLane(run);
    const ends = endIds(run.lanes);
    const found = whatIf(lane, this.tau, ends);
    this.text ||= new LensText(this.view.paneOf(lane).view);
    this.text.draw(regrouped(lane, found, this.tau));
    put(this.caption, lensWords(lane, found, this.tau, ends));
  }
}
