// What the masks of a forward had proposed, as ghosts under the places they were for: the tokens that were then written
// stand above them. Lies over the text and moves nothing; knows the nodes of the tokens and no chart.

import { make } from "../../core/dom.js";
import { proposalRows } from "../folds/why.js";

const SPACE = "␣";
const WIDEST = 140; // pixels of the last ghost in a line

export class Masks {
  constructor() {
    this.layer = make("div", "rv-masks");
    this.layer.setAttribute("aria-hidden", "true"); // the card and "Why here?" say it
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
