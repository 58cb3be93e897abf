// The pane of a text: a head with its settings, verdict and counts, and below it the text, token by token.
//
//   const pane = new TextPane(lane, { choose, token, leave }, { marks: "passes", against: ar, isFollowing: true });
//   parent.append(pane.element);        // pane.head, pane.view.element: the head and the text inside it
//   pane.draw(lane.at(12));             // the lane after 12 passes; pane.draw(lane) shows all of it
//   pane.show("confidence");            // marks: counts below "passes", fills by "confidence" or by "sources"
//   pane.compareWith(other);            // against: a lane, or null
//
// report.choose(lane, step, token) is called when the visitor presses a token, or the button that names the first
// difference. All functions of `report` are optional.
//
// against: the first token that differs from the other lane is outlined, and the head names it as a button. A second
// button marks every other difference, aligned by `aligned` in folds/diff.js. Each draw compares only what both lanes
// show, including given tokens, because a branch shares those with its original run. `pane.comparison` has the result.
// name: what the head calls the other lane; "" if there is only one.
// comparedIn: the pane of `against`, if its buttons are also for this pane, which then has none of its own.

import { runColours } from "../core/colours.js";
import { attribute, button, group, make, put, toggle } from "../core/dom.js";
import { folds } from "../core/folds.js";
import { loopsAt } from "../core/loops.js";
import { doesText } from "../core/methods.js";
import { capital, counted, verdictText, whole } from "../core/words.js";
import { aligned } from "../folds/diff.js";
import { laneText } from "./settings.js";
import { TokenView } from "./text.js";

/**
 * Describes the method of a lane. Lanes with special titles, such as a branch, have no description.
 * @param {Lane} lane
 */
function methodText({ title, facts, settings }) {
  return settings && title === facts.title ? doesText(settings) : "";
}

export class TextPane {
  /** @type {Lane | null} */
  against = null;
  differs = -1; // index of the first output token that differs from `against`
  checked = 0; // number of tokens that were compared
  /** @type {Compared | null} */
  comparison = null; // with the displayed part of `against`

  /**
   * @param {Lane} lane @param {TextReport} [report]
   * @param {{ against?: Lane | null, name?: string, comparedIn?: TextPane | null, marks?: TextMarks, isFollowing?: boolean }} [options]
   */
  constructor(lane, report = {}, options = {}) {
    const { against = null, name = "", marks = "passes", isFollowing = false } = options;
    const comparedIn = /** @type {TextPane | null} */ (options.comparedIn ?? null);
    this.lane = lane;
    this.name = name;
    this.number = make("b");
    this.unit = make("span");
    this.report = report;
    const differs = button("rv-differs rv-num", "", () => this.openDifference());
    this.parts = {
      verdict: make("span", "rv-verdict"),
      differs,
      compared: make("span", "rv-compared rv-num"),
      count: make("span", "rv-count rv-num", this.number, this.unit),
      forwards: make("span", "rv-forwards rv-num"),
      loops: make("span", "rv-loops"),
      does: make("span", "rv-does"),
    };
    this.comparedIn = comparedIn;
    this.all = comparedIn?.all ?? toggle("all", false, () => (this.markAll(), report.marked?.()));
    if (!comparedIn) this.all.append(make("span", "rv-wide", " differences"));
    attribute(this.all, { class: "rv-all-differs", hidden: "", title: "Mark all differences in both texts" });
    this.parts.verdict.hidden = true;
    this.title = make("h3", "", lane.title);
    this.head = make("header", "rv-head", this.title, ...Object.values(this.parts), comparedIn ? "" : this.all);
    const text = group(
      "rv-text",
      `Text of ${lane.title}. Left and right arrows move between tokens, up and down between passes, Enter opens a pass.`,
    );
    this.element = make("article", { class: "rv-pane", "data-lane": lane.name }, this.head, text);
    this.view = new TokenView(text, lane, isFollowing, report);
    this.show(marks);
    this.compareWith(against);
  }

  // Chooses the first token that differs.
  openDifference() {
    const { lane, firstDifference, report } = this;
    const index = firstDifference - lane.givenIds().length;
    if (lane.tokens[index]) report.choose?.(lane, lane.tokens[index].step.index, index);
  }

  /** @param {TextMarks} marks */
  show(marks) {
    this.element.dataset.marks = marks;
  }

  /** @param {Lane | null} lane */
  compareWith(lane) {
    this.against = lane;
    this.differs = -1;
    this.checked = 0;
    this.comparison = null;
    this.view.markDivergence(-1);
    this.markAll();
    this.drawDifference();
  }

  // The index among all output tokens of the first one that differs from `against` or, without `against`, of the first
  // one that AR would not have chosen.
  get firstDifference() {
    const { firstWrong } = this.view;
    return this.against || firstWrong < 0 ? this.differs : this.lane.givenIds().length + firstWrong;
  }

  /**
   * Draws the new steps of the lane, up to the displayed one.
   * @param {Lane} shown
   * @param {{ isBeat?: boolean, shownOther?: Lane | null }} [options] isBeat: whether the latest pass is highlighted,
   * because passes are drawn one by one. shownOther: `against` in its displayed state
   */
  draw(shown, { isBeat = false, shownOther = this.against } = {}) {
    const { lane, element, parts } = this;
    if (lane.header) this.view.append(shown);
    this.view.markDamage();
    this.view.land(isBeat);
    this.compare(shown, shownOther);
    element.dataset.method = lane.method;
    element.dataset.colour = String(runColours.placeOf(lane));
    element.dataset.steps = String(lane.steps.length);
    element.dataset.tokens = String(lane.tokens.length);
    element.dataset.shown = String(shown.steps.length);
    element.dataset.end = lane.end ? lane.end.reason : "";
    put(this.title, capital(shown.title));
    put(parts.does, methodText(shown));
    parts.does.title = laneText(shown);
    const [tokens, passes] = [folds.tokens(shown), folds.forwards(shown)];
    put(this.number, lane.steps.length ? whole(tokens) : "");
    put(this.unit, lane.steps.length ? (tokens === 1 ? " token" : " tokens") : "");
    put(parts.forwards, lane.steps.length ? `in ${counted(passes, "pass", "passes")}` : "");
    put(parts.loops, loopsAt(shown) < 0 ? "" : ", then it repeats itself");
    parts.verdict.hidden = shown.verdict === null;
    parts.verdict.dataset.right = String(shown.verdict);
    put(parts.verdict, verdictText(shown.verdict));
  }

  /**
   * Compares the text with `against`. The search for the first difference continues where it stopped last time.
   * @param {Lane} shown @param {Lane | null} shownOther
   */
  compare(shown, shownOther) {
    const { lane, against } = this;
    if (against?.header && lane.header && shownOther) {
      const [mine, theirs] = [lane, against].map(outputOf);
      const shared = Math.min(mine.length, theirs.length);
      while (this.differs < 0 && this.checked < shared) {
        if (mine[this.checked] !== theirs[this.checked]) this.differs = this.checked;
        this.checked += 1;
      }
      this.comparison = compared([shown, shownOther], this.differs);
      this.view.markDivergence(this.differs < 0 ? -1 : this.differs - lane.givenIds().length);
      if (this.marked !== (this.isAll ? mine.length + theirs.length : 0)) this.markAll();
    }
    this.drawDifference(shown);
  }

  /** @param {Lane} [shown] */
  drawDifference(shown = this.lane) {
    const { against, comparison, firstDifference } = this;
    const isSame = Boolean(comparison?.isSame);
    const index = firstDifference - this.lane.givenIds().length; // negative if the difference is a given token
    const isShown = against ? Boolean(comparison?.isShown) : index >= 0 && index < shown.tokens.length;
    const whom = this.name && ` ${isSame ? "as" : "from"} ${this.name}`;
    const place = isShown ? `${against ? "differs" : "AR differs"}${whom} at token ${whole(firstDifference + 1)}` : "";
    const canOpen = index >= 0 && !this.comparedIn;
    put(this.parts.differs, canOpen ? place : "");
    put(this.parts.compared, isSame ? `same text${whom}` : canOpen ? "" : place);
    this.all.hidden = !comparison?.isShown;
  }

  get isAll() {
    return Boolean(this.against) && this.all.getAttribute("aria-pressed") === "true";
  }

  // Marks every token that the other text does not have, and the tokens before which the other text has more.
  markAll() {
    const { against, lane, view } = this;
    const [own, missing] = [new Set(), new Set()];
    const [mine, theirs] = this.isAll && against ? [outputOf(lane), outputOf(against)] : [[], []];
    this.marked = mine.length + theirs.length;
    const segments = aligned(mine, theirs);
    const open = segments.findLastIndex(({ kind }) => kind === "both"); // later segments may be unfinished
    segments.forEach(({ kind, a, num }, i) => {
      if (kind === "both" || (i > open && !(lane.end && against?.end))) return;
      if (kind === "second") missing.add(a);
      else for (let j = a; j < a + num; j += 1) own.add(j);
    });
    const numGiven = lane.givenIds().length;
    view.tokens.forEach((node, i) => {
      node.classList.toggle("rv-own", own.has(numGiven + i));
      node.classList.toggle("rv-missing", missing.has(numGiven + i));
    });
  }
}

/** @param {Lane} lane */
const outputOf = (lane) => [...lane.givenIds(), ...lane.ids];

/**
 * Compares two texts. isShown: whether both have reached the first different token, `place`. isSame: whether both ended
 * without a difference.
 * @param {Lane[]} lanes @param {number} place @returns {Compared}
 */
function compared(lanes, place) {
  const lengths = lanes.map((lane) => lane.givenIds().length + lane.tokens.length);
  const isSame = place < 0 && lanes.every((lane) => lane.end) && lengths[0] === lengths[1];
  return { place, isShown: place >= 0 && Math.min(...lengths) > place, isSame };
}
