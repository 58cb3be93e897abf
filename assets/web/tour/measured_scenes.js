// The tour's stop with measured results: the frontier of methods, from the data in the page.

import { find, make } from "../core/dom.js";
import { came } from "../explain/explain.js";
import { Chart, kindOf, marksOf } from "../charts/frontier.js";
import { short } from "../core/words.js";
import { SENTENCES } from "./stops.js";

/**
 * Returns the points that the tour shows, with short names: plain AR, the unverified methods, and the lossless method
 * with the fewest passes.
 * @param {FrontierMark[]} marks
 */
function marksOfTour(marks) {
  /** @param {FrontierMark} mark */
  const kind = ({ point }) => kindOf(point.settings);
  const lossless = marks.filter((mark) => kind(mark) === "lossless").sort((a, b) => b.x - a.x);
  const others = marks.filter((mark) => kind(mark) !== "lossless");
  return [...others, ...lossless.slice(0, 1)].map((mark) => ({
    ...mark,
    isBest: true,
    point: { ...mark.point, name: nameOf(mark.point.settings) },
  }));
}

/** @param {Settings} settings */
function nameOf(settings) {
  const kind = kindOf(settings);
  return kind === "ar" ? "plain AR" : kind === "lossless" ? "lossless" : `unverified, τ ${short(settings.tau)}`;
}

// Shows the measured methods by tokens per pass and by the share of their answers that equal plain AR's.
export class FrontierScene {
  /** @type {Beat[]} */
  beats = [{}];

  /** @param {HTMLElement} element */
  constructor(element) {
    const set = came().frontier;
    this.model = set?.checkpoint || "";
    if (!set) {
      element.append(make("p", "pr-figureline", SENTENCES.noFigures));
      return;
    }
    const holder = make("figure", "fv-chart pr-frontier");
    element.append(holder, make("p", "pr-mark", `Measured: ${set.title}`));
    this.chart = new Chart(holder, { open() {}, point() {} }, { left: 70, right: 16, top: 30, bottom: 54 });
    this.chart.draw({
      ...{ marks: marksOfTour(marksOf(set)), own: null, curves: [] },
      ...{ axis: "answers equal to AR's, %", across: "tokens per pass" },
    });
    find(holder, ".fv-plot").setAttribute("aria-label", "Answers equal to AR's, by tokens per pass");
  }

  beat() {}

  leave() {}
}
