// The tour's stop with measured results: the frontier of methods, from the page's data.

import { find, make } from "../core/dom.js";
import { came } from "../explain/explain.js";
import { Chart, marksOf } from "../charts/frontier.js";

const MISSING = "What was measured for this stop did not come with the page.";

// The frontier: each measured method by tokens per pass and by how often its answers are plain AR's own.
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
