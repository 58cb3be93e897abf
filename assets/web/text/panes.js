// The pane of a lane: a head with its settings, verdict, counts and first difference, and below it the text.

import { runColours } from "../core/colours.js";
import { group, make, put } from "../core/dom.js";
import { compared, divergence, idleText } from "../core/folds.js";
import { capital, counted, joined, verdictText, whole } from "../core/words.js";
import { laneText, laneWords, penaltyText } from "./card.js";
import { Rendered } from "./rendered.js";
import { TokenView } from "./text.js";

/**
 * Returns the title of a lane with a description of its method. Lanes with special titles, such as a branch, have no
 * description.
 * @param {Lane} lane
 */
function paneTitle({ title, facts, header, isAr }) {
  if (!header || title !== facts.title) return capital(title);
  return `${capital(title)}: ${isAr ? "one token per pass" : "several tokens per pass"}`;
}

export class Pane {
  /**
   * @param {Lane} lane
   * @param {boolean} isFollowing
   * @param {TextReport} report
   */
  constructor(lane, isFollowing, report) {
    this.lane = lane;
    this.differs = -1; // index of the first token that differs from the reference lane, if there are more than two lanes
    this.checked = 0;
    this.number = make("b");
    this.unit = make("span");
    this.parts = {
      settings: make("span", "rv-settings rv-num"),
      verdict: make("span", "rv-verdict"),
      differs: make("span", "rv-differs rv-num"),
      idle: make("span", "rv-idle"),
      count: make("span", "rv-count rv-num", this.number, this.unit),
      forwards: make("span", "rv-forwards rv-num"),
    };
    this.parts.verdict.hidden = true;
    this.title = make("h3", "", lane.title);
    this.head = make("header", "rv-head", this.title, ...Object.values(this.parts));
    const text = group(
      "rv-text",
      `Text of ${lane.title}. Left and right arrows move between tokens, up and down between passes, Enter selects a pass.`,
    );
    const body = make("div", "rv-body", text);
    this.element = make("article", { class: "rv-pane", "data-lane": lane.name }, this.head, body);
    this.view = new TokenView(text, lane, isFollowing, report);
    this.rendered = new Rendered(text, this.view);
    this.head.append(this.rendered.button);
    body.append(this.rendered.element);
  }

  /**
   * Draws the new steps of the lane, up to the displayed one. isBeat: whether the latest pass is highlighted, because
   * passes are drawn one by one.
   * @param {Lane} shown
   * @param {boolean} isBeat
   */
  draw(shown, isBeat = false) {
    const { lane, element, parts } = this;
    if (lane.header) this.view.append(shown);
    this.view.markDamage();
    this.view.land(isBeat);
    this.rendered.draw(shown);
    element.dataset.method = lane.method;
    element.dataset.colour = String(runColours.placeOf(lane));
    element.dataset.steps = String(lane.steps.length);
    element.dataset.tokens = String(lane.tokens.length);
    element.dataset.shown = String(shown.steps.length);
    element.dataset.end = lane.end ? lane.end.reason : "";
    put(this.title, paneTitle(lane));
    put(parts.settings, joined(laneWords(shown.settings), penaltyText(shown.settings)));
    parts.settings.title = laneText(shown);
    put(this.number, lane.steps.length ? whole(shown.tokens.length) : "");
    put(this.unit, lane.steps.length ? (shown.tokens.length === 1 ? " token" : " tokens") : "");
    put(parts.idle, idleText(shown));
    put(parts.forwards, lane.steps.length ? `in ${counted(shown.steps.length, "pass", "passes")}` : "");
    parts.verdict.hidden = shown.verdict === null;
    parts.verdict.dataset.right = String(shown.verdict);
    put(parts.verdict, verdictText(shown.verdict));
  }

  /**
   * Compares the text with the text of another lane. The search for the first difference continues at the position
   * where it stopped last time.
   * @param {Lane} other
   * @param {(lane: Lane) => Lane} shown
   */
  comparedWith(other, shown) {
    const { lane } = this;
    if (this.differs < 0) this.differs = divergence(lane, other, this.checked);
    this.checked = Math.min(lane.tokens.length, other.tokens.length);
    this.compared(compared([shown(lane), shown(other)], this.differs));
  }

  /**
   * Shows the result of a comparison with another lane (`compared` in core/folds.js).
   * @param {Compared} given
   */
  compared({ place, isShown, isSame }) {
    if (place >= 0) this.view.markDivergence(place);
    this.parts.differs.classList.toggle("rv-same", isSame);
    put(this.parts.differs, isSame ? "same text" : isShown ? `differs at token ${place + 1}` : "");
  }
}
