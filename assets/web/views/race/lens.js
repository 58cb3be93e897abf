// The lens: while no run is in progress, moving τ shows the finished text in the groups of tokens that another
// threshold would have accepted. The lens recolours MARS's text, and its caption explains which part is exact. During a
// run the lens is off, because moving τ then changes the run itself.

import { button, make, put } from "../../core/dom.js";
import { mainLane } from "../../core/folds.js";
import { short, whole } from "../../core/words.js";
import { endIds, proposalRows } from "../../folds/proposals.js";
import { regrouped, whatIf } from "../../folds/whatif.js";
import { cellText } from "../../panels/whatif.js";
import { beginsWithSpace, countPlace } from "../../text/text.js";

export class Lens {
  /** @type {LensText | null} */
  text = null;

  /**
   * @param {HTMLElement} element
   * @param {View} view
   */
  constructor(element, view) {
    this.element = element;
    this.view = view;
    this.tau = NaN; // threshold of the lens; NaN if the lens is off
    this.drawn = NaN;
    this.caption = make("p", { class: "rv-lens-say", "aria-live": "polite" });
    const back = button("", "Back to the actual run", () => this.set(NaN));
    element.append(this.caption, back);
  }

  get isOn() {
    return !Number.isNaN(this.tau);
  }

  /** @param {number} tau NaN turns the lens off */
  set(tau) {
    const { run } = this.view;
    const isOver = run && run.lanes.length && run.lanes.every((lane) => lane.end && lane.steps.length);
    this.tau = isOver && mainLane(run).facts.obeys.includes("tau") && tau >= 0 && tau <= 1 ? tau : NaN;
    this.view.schedule();
  }

  // Resets the lens for another run.
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
    const result = whatIf(lane, this.tau, ends);
    this.text ||= new LensText(this.view.paneOf(lane).view);
    this.text.draw(regrouped(lane, result, this.tau));
    put(this.caption, lensWords(lane, result, this.tau, ends));
  }
}

// Shows a text in groups that differ from its passes. Only the tokens' CSS classes change, so that no token moves.
class LensText {
  /** @param {TokenView} view */
  constructor(view) {
    this.view = view;
    /** @type {string[]} */
    this.drawn = []; // class and count of each token, so that dragging τ updates only the tokens that change
  }

  /** @param {LensGroup[]} groups */
  draw(groups) {
    const { element, lane, tokens } = this.view;
    element.classList.add("rv-lens");
    let before = -1; // index of the latest token with a count below it
    for (const { first, count, isGuess, isFirst } of groups) {
      const fill = count > 1 ? `rv-l${Math.min(count, 5)}` : "";
      const countAt = count > 1 ? countPlace(lane.tokens, first, count, before) : -1;
      if (countAt >= 0) before = countAt;
      const gap = beginsWithSpace(lane.tokens[first]) ? "rv-begin" : "rv-mid";
      for (let i = first; i < first + count; i += 1) {
        const drawn = lane.tokens[i].isEnd ? "" : fill;
        const kind = [drawn, drawn && isGuess && "rv-guess", i === first && gap, isFirst && i === first && "rv-parts"];
        this.dress(i, tokens[i], kind.filter(Boolean).join(" "), i === countAt ? String(count) : "");
      }
    }
  }

  /**
   * @param {number} index
   * @param {HTMLElement} node
   * @param {string} kind
   * @param {string} count
   */
  dress(index, node, kind, count) {
    const state = `${kind}|${count}`;
    if (this.drawn[index] === state) return;
    node.classList.remove(...(this.drawn[index] || "").split("|")[0].split(" ").filter(Boolean));
    node.classList.add(...kind.split(" ").filter(Boolean));
    this.drawn[index] = state;
    if (count) node.dataset.l = count;
    else delete node.dataset.l;
  }

  clear() {
    this.view.element.classList.remove("rv-lens");
    this.drawn.forEach((_, index) => this.dress(index, this.view.tokens[index], "", ""));
    this.drawn = [];
  }
}

const DRAFTS = " Lossless: τ does not change the text, only how many tokens are drafted for the next pass to verify.";

/**
 * @param {Lane} lane
 * @param {WhatIf} result
 * @param {number} tau
 * @param {Set<number>} ends
 */
function lensWords(lane, { first, exact, drafts, cells }, tau, ends) {
  const shown = `Shown with τ\u00a0=\u00a0${short(tau)}.${drafts ? DRAFTS : ""}`;
  if (first < 0) return `${shown} No group would change, so this is exact.`;
  const cell = cells[first];
  const rows = proposalRows(lane, first, ends).slice(cell.isLossless ? lane.steps[first].count : 0);
  const reason = drafts
    ? "later passes would have started from different tokens"
    : "the text itself might have continued differently";
  const change = cellText(lane, cell, rows, tau).replace("Pass", "pass");
  return (
    `${shown} Exact up to pass ${whole(exact.forwards)}, at the orange line: ${change} ` +
    `The hatched part after it is an estimate, because ${reason}.`
  );
}
