// Actions when the reader points at a text or a chart: the card, the line in the charts, the highlighted forward.

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
    this.held = null; // the text of the pinned card
    view.root.ownerDocument.addEventListener("pointerdown", ({ target }) => {
      if (this.held && target instanceof Element && !view.card.element.contains(target)) this.leave();
    });
  }

  /**
   * Shows a token's card, unless a card is pinned.
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
   * Pins the card of a token; its runners-up become buttons. Another press releases it.
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
   * Returns the runners-up of a token if the page supports branches.
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
   * Tab moves from a text into its pinned card and back; Escape releases the card.
   * @param {KeyboardEvent} event
   */
  key(event) {
    const { held } = this;
    if (!held || !["Tab", "Escape"].includes(event.key)) return;
    const buttons = [...this.view.card.element.querySelectorAll("button")];
    const at = buttons.findIndex((each) => each === targetOf(event));
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
   * Chooses a forward in a chart and focuses its text, so that the keyboard continues there.
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
const WIDEST = 140; // pixels of a line's last ghost

// Shows the proposals of a forward's masks as ghosts below the tokens that were written at their places. The layer
// covers the text and moves nothing.
class Masks {
  constructor() {
    this.layer = make("div", { class: "rv-masks", "aria-hidden": true }); // the card and "Why here?" have the same content
  }

  /**
   * Shows what forward `index` proposed without accepting it at once. Returns the lowest such line on the page, if any.
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
 * Whether it was proposed and not accepted at once, or was a draft that AR replaced.
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
