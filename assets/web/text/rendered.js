// Shows an answer formatted instead of as tokens, also during a run. Markdown is rendered, and the pass under the
// pointer is still highlighted in it. If the answer is an HTML page, the page is shown below the tokens, in a frame
// without scripts or requests. All text is set as textContent; the frame's content is untrusted.

import { attribute, make, targetOf, toggle } from "../core/dom.js";
import { markdown } from "./markdown.js";

const PAGE = /^\s*(?:```html?\s*\n)?\s*(<!doctype html|<html[\s>])/i;
const FENCED = /```html?[ \t]*\n([\s\S]*?)(?:\n```|$)/i;
const POLICY =
  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">";
const NOWHERE = "Links are disabled here: ";

export class Rendered {
  /**
   * @param {HTMLElement} raw the element with the tokens
   * @param {TokenView} view
   */
  constructor(raw, view) {
    this.raw = raw;
    this.view = view;
    this.isOn = false;
    this.drawn = "";
    this.lit = -1;
    this.body = make("div", { class: "rv-md", tabindex: 0, role: "document", "aria-label": "Formatted answer" });
    const attributes = { class: "rv-md-frame", sandbox: "", title: "The answer as a page", tabindex: -1, referrerpolicy: "no-referrer" }; // prettier-ignore
    this.frame = make("iframe", attributes);
    this.element = make("div", { class: "rv-rendered", hidden: "", translate: "no" }); // filled on demand, to avoid a second tab stop
    this.button = toggle("Formatted", false, (isOn) => this.turn(isOn));
    attribute(this.button, { class: "rv-md-toggle", title: "Show the answer formatted" });
    this.body.addEventListener("pointerover", (event) => this.point(targetOf(event)));
    this.body.addEventListener("pointerleave", () => this.point(this.body));
    this.body.addEventListener("click", (event) => {
      const step = stepOf(targetOf(event));
      if (step >= 0 && window.getSelection()?.isCollapsed) view.report.choose(view.lane, step);
    });
  }

  /** @param {boolean} isOn */
  turn(isOn) {
    this.isOn = isOn;
    this.element.replaceChildren(...(isOn ? [this.body, this.frame] : []));
    this.drawn = "";
    this.draw(this.view.shown);
  }

  /**
   * Draws the displayed part of the lane, if rendering is on.
   * @param {Lane} shown
   */
  draw(shown) {
    this.element.hidden = !this.isOn;
    if (!this.isOn) this.raw.hidden = false;
    const state = `${shown.tokens.length}`;
    if (!this.isOn || state === this.drawn) return;
    this.drawn = state;
    const text = shown.given + shown.tokens.map((token) => token.text).join("");
    const page = pageIn(text);
    this.raw.hidden = !page; // passes cannot be highlighted in a page, so its tokens stay visible
    this.body.hidden = Boolean(page);
    this.frame.hidden = !page;
    if (page) this.frame.srcdoc = POLICY + page;
    else this.body.replaceChildren(...markdown(text).map((block) => blockOf(block, text, endsOf(shown))));
    this.light(this.lit);
  }

  /** @param {HTMLElement} target */
  point(target) {
    const step = stepOf(target);
    if (step !== this.lit) this.light(step);
  }

  /**
   * Highlights the text that one pass wrote; -1 removes the highlight.
   * @param {number} step
   */
  light(step) {
    for (const node of this.body.querySelectorAll(".rv-md-on")) node.classList.remove("rv-md-on");
    this.lit = step;
    if (step < 0) return;
    for (const node of this.body.querySelectorAll(`[data-forward="${step}"]`)) node.classList.add("rv-md-on");
  }
}

/** @param {HTMLElement} target */
const stepOf = (target) => Number(target.dataset.forward ?? -1);

/**
 * Returns the HTML page in an answer; "" if the answer is not an HTML page.
 * @param {string} text
 */
export function pageIn(text) {
  if (!PAGE.test(text)) return "";
  return FENCED.exec(text)?.[1] ?? text;
}

/** @typedef {{ to: number, step: Step | null }} Stretch */

/**
 * Returns, for each pass, the position in the answer at which the text of the pass ends. The first entry has no step:
 * it is the end of the beginning that was given to a branch, 0 for other runs.
 * @param {Lane} lane
 * @returns {Stretch[]}
 */
export function endsOf(lane) {
  let to = lane.given.length;
  /** @type {Stretch[]} */
  const ends = [{ to, step: null }];
  for (const { text, step } of lane.tokens) {
    to += text.length;
    const last = ends[ends.length - 1];
    if (last.step === step) last.to = to;
    else ends.push({ to, step });
  }
  return ends;
}

/**
 * Creates the element of a block. Its direction follows its first letter; code is always left to right.
 * @param {MarkdownNode} given
 * @param {string} text
 * @param {Stretch[]} ends
 */
function blockOf(given, text, ends) {
  const block = elementOf(given, text, ends);
  if (given.tag !== "pre") block.dir = "auto";
  return block;
}

/**
 * @param {MarkdownNode} given
 * @param {string} text
 * @param {Stretch[]} ends
 * @returns {HTMLElement}
 */
function elementOf({ tag, kind, children }, text, ends) {
  const element = make(/** @type {"p"} */ (tag));
  if (tag === "u" && kind) element.title = `${NOWHERE}${kind}`;
  for (const child of children) {
    if (!Array.isArray(child)) element.append(elementOf(child, text, ends));
    else element.append(...spansOf(child, text, ends));
  }
  return element;
}

/**
 * Creates the spans of a piece of text, one for each pass that wrote a part of it.
 * @param {Piece} piece
 * @param {string} text
 * @param {Stretch[]} ends
 */
function spansOf([from, to], text, ends) {
  const spans = [];
  let low = 0;
  for (let high = ends.length - 1; low < high;) {
    const middle = (low + high) >> 1;
    if (ends[middle].to > from) high = middle;
    else low = middle + 1;
  }
  for (let at = from; at < to && low < ends.length; low += 1) {
    const end = Math.min(to, ends[low].to);
    if (end <= at) continue;
    const { step } = ends[low];
    const span = make("span", step && step.count > 1 ? "rv-md-group" : "", text.slice(at, end));
    if (step) span.dataset.forward = String(step.index);
    spans.push(span);
    at = end;
  }
  return spans;
}
