// The panel "Why here?": every proposal of one forward, why no more of them were taken, what the run wrote in their
// place, and a way to go on from there with another token. Speaks of the chosen forward, else of the last one shown.

import { whole } from "../../core/words.js";
import { make, put } from "../../core/dom.js";
import { settingsText, whyText } from "../text/card.js";
import { endIds, proposalRows } from "../folds/why.js";
import { WhyTable } from "./why_table.js";
import { afterText } from "./why_words.js";

const BRANCH =
  "A token that is a button goes on from there: the prompt and the text up to its place are kept, that token is put there, and the run goes on.";

export class WhyPanel {
  /** @type {Focus | null} */
  held;
  /** @type {View} */
  view;
  /** @type {Focus} */
  shown;

  static id = "why";

  static title = "Why here?";

  /**
   * @param {HTMLElement} element
   * @param {View} view
   */
  constructor(element, view) {
    this.element = element;
    this.view = view;
    element.classList.add("rv-wh");
    this.lane = make("b", "rv-wh-lane");
    this.where = make("span", "rv-wh-where rv-num");
    this.settings = make("span", "rv-wh-settings rv-num");
    this.buttons = [this.button(-1, "‹ previous"), this.button(1, "next ›")];
    const head = make("div", "rv-wh-head");
    head.append(this.lane, this.where, this.settings, ...this.buttons);
    this.sentence = make("p", "rv-wh-say");
    this.hint = make("p", "rv-wh-hint", BRANCH);
    this.table = new WhyTable({ can: (row) => this.canBranch(row), go: (place, id) => this.branch(place, id) });
    element.append(head, this.sentence, this.table.element, this.hint);
    this.hold();
  }

  /**
   * @param {number} by
   * @param {string} text
   */
  button(by, text) {
    const node = make("button", "rv-wh-step", text);
    node.type = "button";
    node.setAttribute("aria-label", by < 0 ? "previous forward" : "next forward");
    node.addEventListener("click", () => this.view.choose(this.shown.lane, this.shown.step + by));
    return node;
  }

  // While somebody points at a row or stands in the table it keeps its forward, for a live run would change it under the hand.
  hold() {
    const { element } = this.table;
    const keep = () => {
      this.held = this.shown;
    };
    const release = () => {
      if (element.matches(":hover") || element.contains(document.activeElement)) return;
      this.held = null;
      this.draw();
    };
    for (const name of ["pointerenter", "focusin"]) element.addEventListener(name, keep);
    for (const name of ["pointerleave", "focusout"]) element.addEventListener(name, () => setTimeout(release));
  }

  // The forward to speak of. What is held gives way to a choice and to another run.
  focus() {
    const { view, held } = this;
    const focus = view.focus;
    const isFree = !held || view.selected || !view.run.lanes.includes(held.lane) || !view.playhead.isFollowing;
    if (isFree) this.held = null;
    return this.held || focus;
  }

  draw() {
    const { lane, step: index } = this.focus();
    const step = lane.steps[index];
    const isEmpty = !step;
    this.table.element.hidden = isEmpty;
    this.hint.hidden = isEmpty || !this.view.canAsk("branch");
    this.buttons.forEach((button, i) => {
      button.disabled = isEmpty || !lane.steps[index + (i ? 1 : -1)];
    });
    put(this.lane, lane.title);
    put(this.where, isEmpty ? "" : whereText(lane, step));
    put(this.settings, isEmpty ? "" : settingsText(step.settings, step.blockSize));
    if (isEmpty) return put(this.sentence, "No forward is shown yet.");
    const ends = endIds(this.view.run.lanes);
    const rows = proposalRows(lane, index, ends);
    const isSame = this.shown && this.shown.lane === lane && this.shown.step === index;
    this.shown = { lane, step: index };
    if (isSame) this.table.refresh(lane, rows);
    else this.table.build(lane, step, rows, ends);
    return put(this.sentence, `${whyText(lane, step)} ${afterText(lane, rows)}`.trim());
  }

  /**
   * One can go on from a place if the text before it is the one that its proposals continued.
   * @param {ProposalRow} row
   */
  canBranch(row) {
    const { lane } = this.shown;
    const isSeen =
      this.view.canAsk("branch") && row.fate !== "past" && row.fate !== "dropped" && row.verdict !== "unknown";
    return isSeen && row.place <= lane.tokens.length;
  }

  /**
   * @param {number} place
   * @param {number} id
   */
  branch(place, id) {
    this.view.ask("branch", { lane: this.shown.lane, token: place, id });
  }
}

/**
 * @param {Lane} lane
 * @param {Step} step
 */
function whereText(lane, step) {
  const [first, last] = [step.first + 1, step.first + step.count];
  const tokens = first === last ? `token ${whole(first)}` : `tokens ${whole(first)} to ${whole(last)}`;
  return `forward ${whole(step.index + 1)} of ${whole(lane.steps.length)} · ${tokens}`;
}
