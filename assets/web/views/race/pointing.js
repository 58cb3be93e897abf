// What happens where a reader points, in a text or a chart: the card, the line in the charts, the lit forward.

import { make, put } from "../../core/dom.js";
import { endIds, proposalRows } from "../../folds/proposals.js";

export class Pointing {
  /** @param {RaceView} view */
  constructor(view) {
    this.view = view;
    this.isByKey = false;
    this.masks = new Masks();
    /** @type {TokenView | undefined} */
    this.lit = undefined;
  }

  /**
   * @param {TokenView} text
   * @param {number} index
   * @param {Element} anchor
   * @param {string} how
   */
  token(text, index, anchor, how) {
    const { card, charts, now, voice } = this.view;
    const { lane } = text;
    this.isByKey = how === "keyboard";
    const { left, right, top, bottom } = anchor.getClientRects()[0] || anchor.getBoundingClientRect();
    const lowest = this.masks.show(text, lane.tokens[index].step.index, endIds(now.lanes));
    card.token(lane, index, { left, right, top, bottom: lowest ?? bottom });
    charts.cursor({ lane, step: lane.tokens[index].step.index });
    if (this.isByKey) put(voice.element, card.element.innerText.replace(/\s+/g, " "));
  }

  /**
   * @param {Lane} lane
   * @param {number} index
   * @param {Anchor} point
   */
  step(lane, index, point) {
    const { card, charts, playhead } = this.view;
    const { view } = this.view.paneOf(lane);
    view.highlight(index);
    if (lane.end && index < playhead.shown(lane)) view.reveal(view.chunks[index]);
    charts.cursor({ lane, step: index });
    this.masks.show(view, index, endIds(this.view.now.lanes));
    card.step(lane, index, point);
    this.lit = view;
  }

  /**
   * A forward chosen in a chart; its text takes the focus, so that the keyboard goes on from there.
   * @param {Lane} lane
   * @param {number} index
   */
  choose(lane, index) {
    this.view.paneOf(lane).view.element.focus({ preventScroll: true });
    this.view.choose(lane, index);
  }

  leave() {
    this.isByKey = false;
    this.masks.hide();
    this.view.card.hide();
    this.view.charts.cursor(null);
    this.lit?.highlight(-1);
  }
}

const SPACE = "␣";
const WIDEST = 140; // pixels of the last ghost in a line

// What the masks of a forward had proposed, as ghosts under the places they were for: the tokens that were then written
// stand above them. Lies over the text and moves nothing.
class Masks {
  constructor() {
    this.layer = make("div", { class: "rv-masks", "aria-hidden": true }); // the card and "Why here?" say it
  }

  /**
   * Shows what forward `index` proposed and did not take at once; gives the lowest line of it on the page, if there is any.
   * @param {TokenView} view
   * @param {number} index
   * @param {Set<number>} ends
   */
  show({ element, lane, shown, tokens }, index, ends) {
    const rows = proposalRows(lane, index, ends).filter((row) => isGhost(row) && row.place < shown.tokens.length);
    const box = element.getBoundingClientRect();
    const rects = rows.map((row) => tokens[row.place].getClientRects()[0] || new DOMRect());
    const ghosts = rows.map((row, i) => {
      const ghost = make("span", "rv-mask", nameOf(lane, row));
      const [rect, next] = [rects[i], rects[i + 1]];
      const room = next && next.top === rect.top ? next.left - rect.left - 2 : WIDEST;
      ghost.dataset.verdict = row.verdict === "same" ? "same" : "other";
      ghost.style.left = `${rect.left - box.left + element.scrollLeft - element.clientLeft}px`;
      ghost.style.top = `${rect.bottom - box.top + element.scrollTop - element.clientTop}px`;
      ghost.style.maxWidth = `${Math.max(10, room)}px`;
      return ghost;
    });
    this.layer.replaceChildren(...ghosts);
    if (this.layer.parentNode !== element) element.append(this.layer);
    const bottoms = rects.map((rect) => Math.min(rect.bottom + 14, box.bottom));
    return bottoms.length ? Math.max(...bottoms) : null;
  }

  hide() {
    this.layer.replaceChildren();
  }
}

/**
 * What was proposed and not taken at once, or was a draft that AR replaced.
 * @param {ProposalRow} row
 */
const isGhost = (row) => row.draft !== undefined || (row.verdict !== null && row.verdict !== "unwritten");

/**
 * @param {Lane} lane
 * @param {ProposalRow} row
 */
function nameOf(lane, row) {
  const name = lane.tokenName(row.draft ?? row.id);
  return name.startsWith(SPACE) && name.length > 1 ? name.slice(1) : name;
}
