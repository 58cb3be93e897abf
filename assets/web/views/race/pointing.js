// What happens when the visitor points at a text or a chart: shows a card, a line in the charts, the highlighted pass,
// and the proposals of its masks.

import { make, put, targetOf } from "../../core/dom.js";
import { endIds, proposalRows } from "../../folds/proposals.js";

const HINT = "Click the token to continue with another one.";
const CHOOSE = "Choose another token to branch here: the branch runs next to this run.";

export class Pointing {
  /** @param {RaceView} view */
  constructor(view) {
    this.view = view;
    this.isByKey = false;
    this.masks = new Masks();
    /** @type {TokenView | undefined} */
    this.lit = undefined;
    /** @type {TokenView | null} */
    this.held = null; // the text with the pinned card; null if no card is pinned
    view.root.ownerDocument.addEventListener("pointerdown", ({ target }) => {
      if (this.held && target instanceof Element && !view.card.element.contains(target)) this.leave();
    });
  }

  /**
   * Shows a token's card. While a card is pinned, the pointer does not open another one.
   * @param {TokenView} text
   * @param {number} index
   * @param {Element} anchor
   * @param {string} how
   */
  token(text, index, anchor, how) {
    if (this.held && how === "pointer") return;
    this.release();
    const others = this.others(text.lane, index);
    this.show(text, index, anchor, how, null, others ? HINT : "");
  }

  /**
   * Pins the card of a token and turns its runners-up into buttons that start a branch. A press outside the card closes
   * it.
   * @param {TokenView} text
   * @param {number} index
   * @param {Element} anchor
   */
  hold(text, index, anchor) {
    const others = this.others(text.lane, index);
    if (!others) return;
    const { element } = this.view.card;
    this.held = text;
    element.classList.add("rv-held");
    this.show(text, index, anchor, this.isByKey ? "keyboard" : "pointer", others, CHOOSE);
  }

  /**
   * Returns the runners-up from which a branch can be started; null if there are none or the page supports no branches.
   * @param {Lane} lane
   * @param {number} index
   * @returns {Others | null}
   */
  others(lane, index) {
    const { step, position } = lane.tokens[index];
    const ends = endIds(this.view.now.lanes);
    const runnersUp = (step.proposals[position]?.[2] ?? []).map(([id]) => id).filter((id) => !ends.has(id));
    if (!runnersUp.length || !this.view.canAsk("branch")) return null;
    return {
      can: (id) => runnersUp.includes(id),
      go: (id) => {
        this.leave();
        this.view.ask("branch", { lane, token: index, id });
      },
    };
  }

  release() {
    this.held = null;
    this.view.card.element.classList.remove("rv-held");
  }

  /**
   * Handles keys while a card is pinned: Tab moves from the text into the card and back, Escape closes the card.
   * @param {KeyboardEvent} event
   */
  key(event) {
    const { held } = this;
    if (!held || !["Tab", "Escape"].includes(event.key)) return;
    const buttons = [...this.view.card.element.querySelectorAll("button")];
    const at = buttons.findIndex((node) => node === targetOf(event));
    if (at < 0 && targetOf(event) !== held.element) return;
    if (event.key === "Escape") this.leave();
    const next = event.key === "Escape" ? undefined : buttons[at + (event.shiftKey ? -1 : 1)];
    if (at < 0 && !next) return;
    event.preventDefault();
    (next ?? held.element).focus({ preventScroll: true });
  }

  /**
   * @param {TokenView} text
   * @param {number} index
   * @param {Element} anchor
   * @param {string} how
   * @param {Others | null} others
   * @param {string} hint
   */
  show(text, index, anchor, how, others, hint) {
    const { card, charts, now, voice } = this.view;
    const { lane } = text;
    this.isByKey = how === "keyboard";
    const { left, right, top, bottom } = anchor.getClientRects()[0] || anchor.getBoundingClientRect();
    const lowest = this.masks.show(text, lane.tokens[index].step.index, endIds(now.lanes));
    card.token(lane, index, { left, right, top, bottom: lowest ?? bottom }, others, hint);
    charts.cursor({ lane, step: lane.tokens[index].step.index });
    if (this.isByKey) put(voice.element, card.element.innerText.replace(/\s+/g, " "));
  }

  /**
   * @param {Lane} lane
   * @param {number} index
   * @param {Anchor} point
   */
  step(lane, index, point) {
    this.release();
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
   * Chooses a pass in a chart and moves the focus to its text, where the arrow keys then work.
   * @param {Lane} lane
   * @param {number} index
   */
  choose(lane, index) {
    this.view.paneOf(lane).view.element.focus({ preventScroll: true });
    this.view.choose(lane, index);
  }

  leave() {
    this.release();
    this.isByKey = false;
    this.masks.hide();
    this.view.card.hide();
    this.view.charts.cursor(null);
    this.lit?.highlight(-1);
  }
}

const SPACE = "␣";
const WIDEST = 140; // maximum width in pixels of the last ghost in a line

// Shows the proposals of a pass's masks in small grey text ("ghosts") below the tokens that were written at their
// positions. They are drawn in a layer above the text, so that the text does not move.
class Masks {
  constructor() {
    this.layer = make("div", { class: "rv-masks", "aria-hidden": true }); // the card and "Why here?" have the same content
  }

  /**
   * Shows the proposals of pass `index` that it did not accept. Returns the y coordinate of the lowest ghost's lower
   * edge, null if there are no ghosts.
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
      const width = next && next.top === rect.top ? next.left - rect.left - 2 : WIDEST;
      ghost.dataset.verdict = row.verdict === "same" ? "same" : "other";
      ghost.style.left = `${rect.left - box.left + element.scrollLeft - element.clientLeft}px`;
      ghost.style.top = `${rect.bottom - box.top + element.scrollTop - element.clientTop}px`;
      ghost.style.maxWidth = `${Math.max(10, width)}px`;
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
 * Returns whether a proposal is shown as a ghost: it was not accepted by its own pass, or was a draft that AR replaced.
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
