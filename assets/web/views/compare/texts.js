// Shows the compared texts side by side. Each text is grouped by pass and aligned with one of them, the reference.
// Differences are marked. Pointing at a token outlines the matching tokens in the other texts. The texts scroll
// together.

import { find, make, placeIn, put } from "../../core/dom.js";
import { counted } from "../../core/words.js";
import { aligned } from "../../folds/diff.js";
import { TextPane } from "../../text/pane.js";
import { LETTERS } from "./figures.js";

export class Texts {
  /** @type {ComparedText[]} */
  panes = [];
  /** @type {ComparedText} */
  leader;
  /** @type {number} */
  reference;
  /** @type {number | null} */
  frame;

  /**
   * report: called when the visitor points at a token, and when the pointer leaves the text.
   * @param {HTMLElement} element
   * @param {{ token(lane: Lane, index: number, anchor: Element): void, leave(): void }} report
   */
  constructor(element, report) {
    this.element = element;
    this.report = report;
  }

  /**
   * @param {Pin[]} pins
   * @param {number} reference
   */
  show(pins, reference) {
    this.panes = pins.map((pin, i) => this.pane(pin, i));
    this.element.replaceChildren(...this.panes.map((pane) => pane.element));
    this.align(reference);
  }

  /**
   * @param {Pin} pin
   * @param {number} i
   */
  pane(pin, i) {
    const { lane } = pin;
    lane.title = pin.name;
    const drawn = new TextPane(lane, {
      token: (view, index) => this.pointed(pane, index, view.tokens[index]),
      leave: () => this.left(),
    });
    drawn.draw(lane);
    find(drawn.head, "h3").replaceChildren(make("span", "cv-letter", LETTERS[i]), pin.name);
    const text = drawn.view.element;
    const { element, parts, view } = drawn;
    /** @type {ComparedText} */
    const pane = { lane, element, parts, view, text, marked: [], lit: null, ...identity(0) };
    const lead = () => void (this.leader = pane);
    for (const event of ["pointerenter", "focusin", "wheel", "touchstart"])
      text.addEventListener(event, lead, { passive: true });
    text.addEventListener("scroll", () => this.scrolled(pane), { passive: true });
    return pane;
  }

  /**
   * Aligns all texts with a reference. Marks the tokens of each text that the reference does not have, and the tokens
   * of the reference that another text does not have.
   * @param {number} reference
   */
  align(reference) {
    this.reference = reference;
    const base = this.panes[reference];
    /** @type {Set<number>} */
    const missing = new Set();
    this.panes.forEach((pane, i) => {
      if (i === reference) return void Object.assign(pane, identity(base.lane.tokens.length));
      const { pairs, whole } = laneAlignment(base.lane, pane.lane);
      Object.assign(pane, pairs);
      mark(pane, pairs.own);
      pairs.missing.forEach((index) => missing.add(index));
      return this.say(pane, differenceText(whole, LETTERS[reference]), whole.own.size + whole.missing.size > 0);
    });
    mark(base, missing);
    this.say(base, "the reference", false);
  }

  /**
   * @param {ComparedText} given
   * @param {string} text
   * @param {boolean} isDifferent
   */
  say({ parts }, text, isDifferent) {
    put(parts.differs, text);
    parts.differs.classList.toggle("rv-same", !isDifferent);
  }

  /**
   * @param {ComparedText} pane
   * @param {number} index
   * @param {Element} anchor
   */
  pointed(pane, index, anchor) {
    this.light(-1);
    this.light(pane.toBase[index], pane);
    this.report.token(pane.lane, index, anchor);
  }

  left() {
    this.light(-1);
    this.report.leave();
  }

  /**
   * Outlines a token of the reference in all texts except `from`; -1 removes the outlines.
   * @param {number} index index of the token in the reference
   * @param {ComparedText} [from]
   */
  light(index, from) {
    for (const pane of this.panes) {
      if (pane.lit) pane.lit.classList.remove("cv-here");
      pane.lit = index >= 0 && pane !== from ? pane.view.tokens[pane.fromBase[index]] : null;
      if (pane.lit) pane.lit.classList.add("cv-here");
    }
  }

  /**
   * Scrolls the other texts to the position of the text that the visitor scrolls.
   * @param {ComparedText} pane
   */
  scrolled(pane) {
    if (pane !== this.leader || this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      const index = firstInSight(pane);
      if (index < 0) return;
      const offset = placeIn(pane.text, pane.view.tokens[index]) - pane.text.scrollTop;
      for (const other of this.panes) {
        if (other === pane) continue;
        const node = other.view.tokens[other.fromBase[pane.near[index]]];
        if (node) other.text.scrollTop = placeIn(other.text, node) - offset;
      }
    });
  }
}

/**
 * Returns the tokens of a lane, including its given ones, as text. Unlike ids, these can be compared between runs with
 * different vocabularies.
 * @param {Lane} lane
 */
const keys = (lane) => [
  ...lane.givenIds().map((id) => String.fromCharCode(...lane.bytes(id))),
  ...lane.tokens.map((token) => (token.isEnd ? "\u0000end" : String.fromCharCode(...lane.bytes(token.id)))),
];

/**
 * Aligns two lanes including their given tokens, because a branch shares those with its parent. whole: the alignment
 * with the given tokens. pairs: the same alignment for the generated tokens only, which are the ones that are drawn.
 * @param {Lane} base
 * @param {Lane} lane
 */
export function laneAlignment(base, lane) {
  const whole = alignment(keys(base), keys(lane));
  const [before, given] = [base.givenIds().length, lane.givenIds().length];
  /** @type {(places: Set<number>, from: number) => Set<number>} */
  const within = (places, from) => new Set([...places].filter((place) => place >= from).map((place) => place - from));
  /** @type {(places: Int32Array, from: number, to: number) => Int32Array} */
  const shifted = (places, from, to) => places.slice(from).map((place) => Math.max(-1, place - to));
  const pairs = {
    own: within(whole.own, given),
    missing: within(whole.missing, before),
    toBase: shifted(whole.toBase, given, before),
    near: shifted(whole.near, given, before),
    fromBase: shifted(whole.fromBase, before, given),
  };
  return { pairs, whole };
}

/** @type {(length: number) => Alignment} */
const identity = (length) => {
  const same = Int32Array.from({ length }, (_, i) => i);
  return { own: new Set(), missing: new Set(), toBase: same, fromBase: same, near: same };
};

/**
 * Aligns the tokens of a text with those of the reference (base).
 * - own: indices of tokens that only this text has
 * - missing: indices in the reference of tokens that only the reference has
 * - toBase: for each token, the index of the matching token in the reference, or -1
 * - near: for each token, the index of the matching token in the reference; without a match, of the reference's next
 *   token
 * - fromBase: for each token of the reference, the index of the matching token in this text; without a match, of this
 *   text's next token
 * @param {string[]} base
 * @param {string[]} words
 * @returns {Alignment}
 */
export function alignment(base, words) {
  const [own, missing] = [new Set(), new Set()];
  const toBase = new Int32Array(words.length).fill(-1);
  const near = new Int32Array(words.length);
  const fromBase = new Int32Array(base.length);
  for (const { kind, a, b, num } of aligned(base, words)) {
    for (let i = 0; i < num; i += 1) {
      if (kind === "both") {
        toBase[b + i] = a + i;
        near[b + i] = a + i;
        fromBase[a + i] = b + i;
      } else if (kind === "first") {
        missing.add(a + i);
        fromBase[a + i] = Math.max(0, Math.min(b, words.length - 1));
      } else {
        own.add(b + i);
        near[b + i] = Math.max(0, Math.min(a, base.length - 1));
      }
    }
  }
  return { own, missing, toBase, near, fromBase };
}

/**
 * @param {ComparedText} pane
 * @param {Iterable<number>} places
 */
function mark(pane, places) {
  for (const node of pane.marked) node.classList.remove("cv-differs");
  pane.marked = [...places].map((index) => pane.view.tokens[index]);
  for (const node of pane.marked) node.classList.add("cv-differs");
}

/**
 * @param {Pick<Alignment, "own" | "missing" | "toBase">} given
 * @param {string} letter
 */
export function differenceText({ own, missing, toBase }, letter) {
  if (!own.size && !missing.size) return `same text as ${letter}`;
  const first = Math.min(...own, ...missing);
  const count = own.size
    ? `${own.size} of ${counted(toBase.length, "token")} not in ${letter}`
    : `${counted(missing.size, "token")} of ${letter} missing`;
  return `different from token ${first + 1} onwards: ${count}`;
}

/**
 * Returns the index of the first token below the upper edge of a scrolled text; -1 if the text is empty.
 * @param {ComparedText} given
 */
function firstInSight({ text, view }) {
  let [low, high] = [0, view.tokens.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (placeIn(text, view.tokens[middle]) < text.scrollTop) low = middle + 1;
    else high = middle;
  }
  return view.tokens.length ? low : -1;
}
