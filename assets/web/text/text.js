// The text of a lane, token by token. New spans are appended and never rebuilt; those after the displayed step are
// hidden. The text is a single tab stop; arrow keys move between tokens. Views use it through TextPane (pane.js).

import { isRightToLeft, withoutBidi } from "../core/bytes.js";
import { make, placeIn, put, targetOf } from "../core/dom.js";
import { lastOf } from "../core/folds.js";
import { SOURCES } from "../core/sources.js";
import { joined, probability } from "../core/words.js";
import { moveText } from "./settings.js";
import { Fences } from "./fences.js";

const SEGMENT = 40; // tokens after which a line break starts a new block, so that the browser lays out only the last block
const CODE = /\n(?:def|class) \w+.*:\n/;

/** @type {(className: string, text?: string) => HTMLElement} */
const span = (className, text) => {
  const node = document.createElement("span");
  node.className = className;
  if (text) node.textContent = text;
  return node;
};

const GAP_ABOVE = 6; // pixels between the edge of a scrolled text and its first visible line
const LINE = 60; // pixels, more than the height of a line

export class TokenView {
  /** @type {HTMLElement[]} */
  tokens = [];
  /** @type {HTMLElement | undefined} */
  lit;
  /** @type {HTMLElement | undefined} */
  chosen;
  /** @type {HTMLElement | undefined} */
  picked;
  /** @type {HTMLElement | undefined} */
  differs;
  /** @type {HTMLElement | undefined} */
  given;
  /** @type {HTMLElement | undefined} */
  landed;

  /** @param {HTMLElement} element @param {Lane} lane @param {boolean} isFollowing @param {TextReport} report */
  constructor(element, lane, isFollowing, report) {
    this.element = element;
    element.translate = false; // a browser's translation would replace the spans
    this.lane = lane;
    this.shown = lane; // the lane in its displayed state
    this.report = report;
    this.at = -1;
    this.marks = new MoveMarks(lane);
    this.isWhole = true; // whether all of `shown` is visible; after a jump over thousands of passes this takes some frames
    this.isStuck = isFollowing;
    this.scrolledTo = -1; // where this view has scrolled to, until the scroll event; otherwise -1
    this.tail = make("span", { class: "rv-tail", "aria-hidden": true });
    this.groups = new Groups(element, this.tail);
    this.segmentStart = 0;
    this.counted = -1; // index of the latest token with a count below it
    this.fences = new Fences();
    this.recent = ""; // the latest text outside fenced code
    this.numCompared = 0; // number of tokens that were compared with AR's choice
    this.firstWrong = -1; // index of the first token that AR would not have chosen
    this.listen();
  }

  get chunks() {
    return this.groups.chunks;
  }

  /** Draws the new steps of the lane, and shows those up to the displayed one. @param {Lane} shownLane */
  append(shownLane) {
    const { lane } = this;
    const before = this.tokens.length;
    if (before === 0 && lane.end) this.isStuck = false; // a complete run is read from the top
    if (before === 0 && lane.given && !this.given) {
      const last = lane.lastGiven(); // the token with which a branch begins
      this.given = span("rv-given", withoutBidi(lane.given.slice(0, lane.given.length - last.length)));
      if (last) this.given.append(span("rv-fork", withoutBidi(last)));
      this.given.title = "Given text; decoding started after it";
      this.groups.segment.prepend(this.given);
    }
    for (let i = this.chunks.length; i < lane.steps.length; i += 1) {
      const step = lane.steps[i];
      this.groups.add([...this.marks.upTo(step), this.chunk(step)]);
      const last = lane.tokens[step.first + step.count - 1];
      if (last && last.text.endsWith("\n") && this.tokens.length - this.segmentStart > SEGMENT) {
        this.groups.newSegment();
        this.segmentStart = this.tokens.length;
      }
    }
    this.lookForCode(before);
    const isReplay = shownLane !== lane || this.shown !== lane;
    const hasMoved = shownLane.steps.length !== this.shown.steps.length || !this.isWhole;
    this.show(shownLane);
    this.isBehind = isReplay ? hasMoved : this.isStuck && !this.lit;
  }

  // Scrolls to the end of the visible text if new text was added there. This causes a layout, so call it after all
  // drawing.
  follow() {
    if (!this.isBehind) return;
    this.isBehind = false;
    const { element } = this;
    const before = element.scrollTop;
    element.scrollTop = element.scrollHeight;
    this.alignLine();
    if (element.scrollTop === before) return; // no scroll event will follow
    this.scrolledTo = element.scrollTop;
    this.isStuck = true;
  }

  // Scrolls back a little, so that the first visible line is not cut, and nothing of the line above it is visible.
  alignLine() {
    const { element, shown } = this;
    const edge = element.getBoundingClientRect().top;
    const lines = [];
    for (const chunk of this.chunks.slice(0, shown.steps.length).reverse()) {
      lines.push(...[...chunk.getClientRects()].filter(({ height }) => height));
      if ((lines.at(-1)?.bottom ?? edge) < edge - LINE) break;
    }
    element.scrollTop -= scrolledBack(lines, edge);
  }

  // Scrolls to the beginning, and stops following the end.
  toTop() {
    this.isStuck = false;
    this.scrolledTo = 0;
    this.element.scrollTop = 0;
  }

  /** Shows the passes of the displayed lane and hides later ones. @param {Lane} shownLane */
  show(shownLane) {
    for (const index of [this.shown.shortened, shownLane.shortened]) {
      if (index >= 0) put(this.tokens[index], withoutBidi((shownLane.tokens[index] || this.lane.tokens[index]).text));
    }
    this.shown = shownLane;
    this.isWhole = this.groups.show(shownLane.steps.length);
    this.drawTail();
    if (this.at >= shownLane.tokens.length) this.leave("keyboard");
  }

  /** @param {Step} step */
  chunk(step) {
    const node = span(`rv-c rv-n${Math.min(step.count, 5)}`);
    const fenced = [];
    for (let i = step.first; i < step.first + step.count; i += 1) {
      const token = this.lane.tokens[i];
      const child = span(token.isEnd ? "rv-t rv-eos" : "rv-t", withoutBidi(token.text));
      const source = step.sources[i - step.first];
      if (source !== "ar") child.classList.add("rv-by", `rv-by-${SOURCES[source].mark}`);
      if (token.joins >= 0) this.complete(token.joins);
      if (token.isEnd) child.title = "end of the text";
      child.rvToken = i;
      if (token.confidence !== null) child.style.setProperty("--p", String(token.confidence));
      const text = token.joined + token.text;
      if (this.fences.append(text)) fenced.push(child);
      else this.recent += text;
      node.append(child);
      this.tokens.push(child);
    }
    for (const part of fenced.length === step.count ? [node] : fenced) part.classList.add("rv-fenced");
    if (fenced.length) this.element.classList.add("rv-fences");
    markDirection(node);
    if (step.count > 1) {
      const countAt = countPlace(this.lane.tokens, step.first, step.count, this.counted);
      node.dataset.n = String(step.count);
      node.classList.toggle("rv-mid", !beginsWithSpace(this.lane.tokens[step.first]));
      if (countAt >= 0) {
        this.tokens[countAt].dataset.k = String(step.count);
        this.counted = countAt;
      }
    }
    return node;
  }

  /** Redraws a token after a later token has appended a joiner or accent to its text. @param {number} index */
  complete(index) {
    const node = this.tokens[index];
    put(node, withoutBidi(this.lane.tokens[index].text));
    if (node.parentElement) markDirection(node.parentElement);
  }

  /**
   * Highlights the last displayed pass until the next one is displayed, if passes are drawn one by one (isBeat).
   * @param {boolean} isBeat
   */
  land(isBeat) {
    const latest = isBeat ? this.chunks[this.shown.steps.length - 1] : undefined;
    if (latest === this.landed) return;
    this.landed?.classList.remove("rv-landed");
    this.landed = latest;
    latest?.classList.add("rv-landed");
  }

  drawTail() {
    const { shown: shownLane } = this;
    const latest = this.tokens[shownLane.tokens.length - 1];
    this.tail.classList.toggle("rv-fenced", Boolean(latest?.closest(".rv-fenced")));
    const ghosts = shownLane.ghosts();
    const nodes = [];
    if (shownLane.end) {
      const last = shownLane.tokens.findLast((token) => !token.isEnd);
      if (last && last.rest) nodes.push(span("rv-t", withoutBidi(last.rest)));
    } else if (shownLane.steps.length) nodes.push(span("rv-frontier"));
    if (ghosts && ghosts.drafts) nodes.push(span("rv-draft", withoutBidi(ghosts.drafts)));
    if (ghosts && ghosts.refused) nodes.push(span("rv-ghost", withoutBidi(ghosts.refused)));
    this.tail.replaceChildren(...nodes);
  }

  /**
   * Sets the whole text in a monospaced font if it contains code outside fences: a Python definition in the text or in
   * the prompt.
   * @param {number} from
   */
  lookForCode(from) {
    if (this.isCode) return;
    if (from === 0) this.recent = `${this.lane.header?.prompt || ""}\n${this.lane.given}${this.recent}`;
    this.isCode = CODE.test(this.recent);
    this.recent = this.recent.slice(-80);
    if (this.isCode) this.element.classList.add("rv-code");
  }

  /** @param {number} index of the first token that differs from another text; -1 removes the mark */
  markDivergence(index) {
    if (this.differs === this.tokens[index]) return;
    this.differs?.classList.remove("rv-mark");
    this.differs = this.tokens[index];
    this.differs?.classList.add("rv-mark");
  }

  // Marks the tokens for which AR would have chosen another token. Each pass reports this for the tokens before it.
  markDamage() {
    const { tokens, steps } = this.lane;
    const end = Math.min(this.tokens.length, steps.at(-1)?.first ?? 0);
    for (; this.numCompared < end; this.numCompared += 1) {
      const { check, id } = tokens[this.numCompared];
      if (!check || check.id === id) continue;
      this.tokens[this.numCompared].classList.add("rv-wrong");
      if (this.firstWrong < 0) this.firstWrong = this.numCompared;
    }
  }

  listen() {
    const { element } = this;
    element.addEventListener(
      "scroll",
      () => {
        // The browser sends one event for all scrolling in an animation frame, so the visitor may have scrolled after
        // this view.
        const isOwnScroll = element.scrollTop === this.scrolledTo;
        this.scrolledTo = -1;
        if (isOwnScroll) return;
        this.isStuck = element.scrollHeight - element.scrollTop - element.clientHeight < 28;
      },
      { passive: true },
    );
    new ResizeObserver(() => {
      this.isBehind ||= this.isStuck; // new line breaks have moved the end
      this.follow();
    }).observe(element);
    element.addEventListener("click", (event) => {
      const index = targetOf(event).rvToken;
      if (index !== undefined && window.getSelection()?.isCollapsed) this.press(index);
    });
    element.addEventListener("pointerover", (event) => this.point(targetOf(event), "pointer"));
    element.addEventListener("pointerleave", () => this.leave("pointer"));
    element.addEventListener("keydown", (event) => this.key(event));
    element.addEventListener("blur", () => this.leave("keyboard"));
  }

  /** @param {number} index */
  press(index) {
    this.report.choose?.(this.lane, this.lane.tokens[index].step.index, index);
  }

  /** @param {HTMLElement} target @param {string} how */
  point(target, how) {
    const index = target.rvToken;
    if (index === undefined) return this.leave("pointer");
    const { lane, report } = this;
    const { confidence, step } = lane.tokens[index];
    this.highlight(step.index);
    target.title ||= joined(`pass ${step.index + 1}`, confidence !== null && probability(confidence));
    report.token?.(this, index, how);
    return undefined;
  }

  /** @param {string} how */
  leave(how) {
    if (how === "pointer" && this.at >= 0) return;
    this.setAt(-1);
    this.highlight(-1);
    this.report.leave?.(this);
  }

  /** @param {number} step */
  highlight(step) {
    if (this.lit) this.lit.classList.remove("rv-on");
    this.lit = this.chunks[step];
    if (this.lit) this.lit.classList.add("rv-on");
  }

  /**
   * Marks the chosen pass and token, and scrolls to them; -1 removes the mark.
   * @param {number} step @param {number} [token]
   */
  choose(step, token = -1) {
    this.chosen?.classList.remove("rv-chosen");
    this.picked?.classList.remove("rv-picked");
    this.chosen = this.chunks[step];
    this.picked = this.tokens[token];
    this.chosen?.classList.add("rv-chosen");
    this.picked?.classList.add("rv-picked");
    if (this.chosen?.offsetParent) this.reveal(this.chosen);
  }

  /** @param {number} index */
  setAt(index) {
    if (this.at >= 0 && this.tokens[this.at]) this.tokens[this.at].classList.remove("rv-at");
    this.at = index;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { tokens, steps } = this.shown;
    const last = tokens.length - 1;
    if (event.key === "Escape") return this.leave("keyboard");
    if (last < 0 || event.ctrlKey || event.metaKey || event.altKey) return undefined;
    const at = this.at;
    const step = at >= 0 ? tokens[at].step.index : -1;
    if (event.key === "Enter" && step >= 0) return this.press(at);
    /** @param {number} i */
    const firstOf = (i) => steps[Math.max(0, Math.min(i, steps.length - 1))].first;
    /** @type {Record<string, number>} */
    const targets = {
      ArrowRight: at + 1,
      ArrowLeft: at < 0 ? last : at - 1,
      ArrowDown: firstOf(step + 1),
      ArrowUp: firstOf(step - 1),
      Home: 0,
      End: last,
    };
    if (!(event.key in targets)) return undefined;
    event.preventDefault();
    this.go(Math.max(0, Math.min(last, targets[event.key])));
    return undefined;
  }

  /** @param {number} index */
  go(index) {
    this.setAt(index);
    const node = this.tokens[index];
    node.classList.add("rv-at");
    this.reveal(node);
    this.point(node, "keyboard");
  }

  /** Scrolls a node into view without moving the page, and stops following the end. @param {HTMLElement} node */
  reveal(node) {
    const { element } = this;
    const top = placeIn(element, node);
    this.isStuck = false;
    this.isBehind = false;
    if (top - 12 < element.scrollTop || top + 60 > element.scrollTop + element.clientHeight) {
      element.scrollTop = top - element.clientHeight / 2;
    }
  }
}

/**
 * Returns by how many pixels a text is scrolled back so that its first visible line is whole.
 * @param {{ top: number, bottom: number }[]} lines boxes of passes, in any order @param {number} edge of the visible part
 */
export function scrolledBack(lines, edge) {
  const first = Math.min(...lines.filter(({ bottom }) => bottom > edge).map(({ top }) => top));
  const above = Math.max(...lines.filter(({ bottom }) => bottom <= edge).map(({ bottom }) => bottom));
  const gap = Math.max(0, Math.min(GAP_ABOVE, first - above));
  return Math.max(0, edge + gap - first);
}

const GROUP = 48; // passes in a group
const AT_ONCE = 4; // hidden groups shown per call; laying out thousands of tokens at once would block the page

// The passes of a text, arranged in groups so that many passes can be hidden or shown at once.
class Groups {
  /** @type {HTMLElement[]} */
  chunks = [];
  /** @type {Group[]} */
  groups = [];
  /** @type {HTMLElement} */
  segment;
  /** @type {Group} */
  group;

  /** @param {HTMLElement} element @param {HTMLElement} tail */
  constructor(element, tail) {
    this.element = element;
    this.tail = tail; // the node after the last displayed pass
    /** @type {HTMLElement[]} */
    this.complete = []; // segments that were completed since the last call of `show`
    /** @type {HTMLElement[]} */
    this.drawn = []; // segments that were completed before that, so they have been laid out
    this.newSegment();
  }

  // Starts a new segment of the text, so that the browser lays out only the last segment for each new token.
  newSegment() {
    if (this.segment) this.complete.push(this.segment);
    this.segment = span("rv-seg");
    this.element.append(this.segment);
    this.newGroup();
  }

  newGroup() {
    this.group = { node: make("span"), first: this.chunks.length, nodes: [], cut: 0 };
    this.groups.push(this.group);
    this.segment.append(this.group.node);
  }

  /** Adds the nodes of a pass. The last node contains the pass's text. @param {HTMLElement[]} nodes */
  add(nodes) {
    if (this.group.nodes.length === GROUP) this.newGroup();
    this.group.node.append(...nodes);
    this.group.nodes.push(nodes);
    this.group.cut = -1;
    this.chunks.push(lastOf(nodes));
  }

  /**
   * Shows the first `num` passes and returns whether all of them are visible now. After a long jump this takes several
   * calls; the latest passes are shown first, because they are in view.
   * @param {number} num
   */
  show(num) {
    this.releaseSegments();
    let left = AT_ONCE;
    for (const group of this.groups.toReversed()) {
      const size = group.nodes.length;
      const cut = Math.max(0, Math.min(size, num - group.first));
      if (cut === group.cut) continue;
      if (group.node.hidden) left -= 1;
      if (left < 0) continue;
      group.cut = cut;
      group.node.hidden = cut === 0 && size > 0;
      if (cut > 0) group.nodes.forEach((nodes, i) => nodes.forEach((node) => hide(node, i >= cut)));
    }
    this.placeTail(num);
    return left >= 0;
  }

  // Lets the browser skip rendering of segments outside the view, once they were laid out and their height is known.
  releaseSegments() {
    for (const segment of this.drawn) segment.classList.add("rv-laid");
    this.drawn = this.complete;
    this.complete = [];
  }

  /** @param {number} num */
  placeTail(num) {
    const group = this.groups.findLast(({ first, nodes }) => first <= num && nodes.length);
    const next = group && group.nodes[num - group.first];
    if (next) (group.cut ? next[0] : group.node).before(this.tail);
    else if (this.segment.lastChild !== this.tail) this.segment.append(this.tail);
  }
}

/**
 * Marks the tokens of a pass (a group) as written from right to left, so that their gap and count are drawn on the
 * other side.
 * @param {HTMLElement} group
 */
function markDirection(group) {
  group.classList.toggle("rv-rtl", isRightToLeft(group.textContent || ""));
}

/** @param {HTMLElement} node @param {boolean} isHidden */
function hide(node, isHidden) {
  if (node.hidden !== isHidden) node.hidden = isHidden;
}

// Marks in the margin of a text at the steps where a setting was changed.
class MoveMarks {
  /** @param {Lane} lane */
  constructor(lane) {
    this.lane = lane;
    this.num = 0; // number of moves that have a mark
    this.node = make("span");
  }

  /**
   * Returns the mark to draw before a step, [] if there is none. Also updates the text of the last mark while its
   * change of settings is still in progress, for example because the visitor is dragging a slider.
   * @param {Step} step
   */
  upTo(step) {
    const { moves } = this.lane;
    const last = moves[this.num - 1];
    if (last && last.until >= step.index) this.node.textContent = moveText(last);
    if (this.num === moves.length || moves[this.num].step > step.index) return [];
    const move = moves[this.num];
    this.num += 1;
    const title = `${moveText(move)} from pass ${move.step + 1} on`;
    this.node = make("span", { class: "rv-move", title, "aria-hidden": true }, moveText(move));
    return [this.node];
  }
}

const INKED = /\S$/;

/**
 * Returns the index of the token below which a group's number of tokens is drawn: the group's last token with visible
 * characters. Returns -1 if no token is visible or the text since the previous number is too narrow.
 * @param {Token[]} tokens @param {number} first @param {number} count
 * @param {number} [before] index of the token with the previous number, -1 for none
 */
export function countPlace(tokens, first, count, before = -1) {
  let index = first + count - 1;
  while (index >= first && !INKED.test(tokens[index].text)) index -= 1;
  if (index < first) return -1;
  const between = tokens.slice(before + 1, index + 1).reduce((sum, { text }) => sum + text.length, 0);
  return before >= 0 && between <= String(count).length ? -1 : index;
}

/**
 * Returns whether a group's first token begins with white space other than a line break. The gap between two groups is
 * drawn over that white space.
 * @param {Token} token
 */
export const beginsWithSpace = (token) => /^[^\S\n]/.test(token.text);
