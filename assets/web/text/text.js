// The token view of one lane. It appends spans, never rebuilds them, and hides what is later than the displayed step.
// It has one tab stop; arrow keys move inside. Cards and charts are notified through `report`.

import { isRightToLeft, shown } from "../core/bytes.js";
import { make, placeIn, put, targetOf } from "../core/dom.js";
import { lastOf } from "../core/folds.js";
import { SOURCES } from "../core/sources.js";
import { moveText } from "./card.js";
import { Fences } from "./fences.js";

const SEGMENT = 40; // tokens after which a line break starts a new block, so that layout stays local
const CODE = /\n(?:def|class) \w+.*:\n/;

/** @type {(className: string, text?: string) => HTMLElement} */
const span = (className, text) => {
  const node = document.createElement("span");
  node.className = className;
  if (text) node.textContent = text;
  return node;
};

export class TokenView {
  /** @type {HTMLElement[]} */
  tokens = [];
  /** @type {HTMLElement | undefined} */
  lit;
  /** @type {HTMLElement | undefined} */
  chosen;
  /** @type {HTMLElement | undefined} */
  given;
  /** @type {HTMLElement | undefined} */
  landed;

  /**
   * @param {HTMLElement} element
   * @param {Lane} lane
   * @param {boolean} isFollowing
   * @param {TextReport} report
   */
  constructor(element, lane, isFollowing, report) {
    this.element = element;
    this.lane = lane;
    this.shown = lane; // the lane at the displayed step
    this.report = report;
    this.at = -1;
    this.marks = new MoveMarks(lane);
    this.range = new TextRange(this);
    this.isWhole = true; // all of `shown` is visible: after a jump over thousands of forwards this takes some frames
    this.isStuck = isFollowing;
    this.tail = make("span", { class: "rv-tail", "aria-hidden": true });
    this.groups = new Groups(element, this.tail);
    this.segmentStart = 0;
    this.counted = -1; // the latest token with a count below it
    this.fences = new Fences();
    this.seen = ""; // the latest text outside fenced code
    this.judged = 0; // tokens that were compared with AR's choice
    this.listen();
  }

  get chunks() {
    return this.groups.chunks;
  }

  /**
   * Draws what is new in the lane, up to the displayed step.
   * @param {Lane} now
   */
  append(now) {
    const { lane } = this;
    const before = this.tokens.length;
    if (before === 0 && lane.end) this.isStuck = false; // a complete run: reading starts at the top
    if (before === 0 && lane.given && !this.given) {
      const last = lane.lastGiven(); // the beginning of a branch
      this.given = span("rv-given", shown(lane.given.slice(0, lane.given.length - last.length)));
      if (last) this.given.append(span("rv-fork", shown(last)));
      this.given.title = "given text: decoding started after it";
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
    const isReplay = now !== lane || this.shown !== lane;
    const hasMoved = now.steps.length !== this.shown.steps.length || !this.isWhole;
    this.show(now);
    this.isBehind = isReplay ? hasMoved : this.isStuck && !this.lit;
  }

  // Scrolls to the end of the visible text. Causes a layout, so call it after all drawing.
  follow() {
    if (!this.isBehind) return;
    this.isBehind = false;
    const { element } = this;
    const before = element.scrollTop;
    element.scrollTop = element.scrollHeight;
    if (element.scrollTop === before) return; // no scroll event will follow
    this.isOwnScroll = true;
    this.isStuck = true;
  }

  /**
   * Hides the forwards after the last one of `now`.
   * @param {Lane} now
   */
  show(now) {
    for (const place of [this.shown.shortened, now.shortened]) {
      if (place >= 0) put(this.tokens[place], shown((now.tokens[place] || this.lane.tokens[place]).text));
    }
    this.shown = now;
    this.isWhole = this.groups.show(now.steps.length);
    this.drawTail();
    if (this.at >= now.tokens.length) this.leave("keyboard");
  }

  /** @param {Step} step */
  chunk(step) {
    const node = span(`rv-c rv-n${Math.min(step.count, 5)}`);
    for (let i = step.first; i < step.first + step.count; i += 1) {
      const token = this.lane.tokens[i];
      const child = span(token.isEnd ? "rv-t rv-eos" : "rv-t", shown(token.text));
      const source = step.sources[i - step.first];
      if (source !== "ar") child.classList.add("rv-by", `rv-by-${SOURCES[source].mark}`);
      if (token.joins >= 0) this.complete(token.joins);
      if (token.isEnd) child.title = "end of the text";
      child.rvToken = i;
      if (this.fences.take(token.text)) {
        node.classList.add("rv-fenced");
        this.element.classList.add("rv-fences");
      } else this.seen += token.text;
      node.append(child);
      this.tokens.push(child);
    }
    markDirection(node);
    if (step.count > 1) {
      const place = countPlace(this.lane.tokens, step.first, step.count, this.counted);
      node.dataset.n = String(step.count);
      node.classList.toggle("rv-mid", !beginsWithSpace(this.lane.tokens[step.first]));
      if (place >= 0) {
        this.tokens[place].dataset.k = String(step.count);
        this.counted = place;
      }
    }
    return node;
  }

  /**
   * Redraws a token after its last character was completed by a later token.
   * @param {number} place
   */
  complete(place) {
    const node = this.tokens[place];
    put(node, shown(this.lane.tokens[place].text));
    if (node.parentElement) markDirection(node.parentElement);
  }

  /**
   * Highlights the last displayed forward until the next one, if passes are drawn one by one.
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
    const { shown: now } = this;
    const ghosts = now.ghosts();
    const nodes = [];
    if (now.end) {
      const rest = now.tokens.findLast((t) => !t.isEnd);
      if (rest && rest.rest) nodes.push(span("rv-t", shown(rest.rest)));
    } else if (now.steps.length) nodes.push(span("rv-frontier"));
    if (ghosts && ghosts.drafts) nodes.push(span("rv-draft", shown(ghosts.drafts)));
    if (ghosts && ghosts.refused) nodes.push(span("rv-ghost", shown(ghosts.refused)));
    this.tail.replaceChildren(...nodes);
  }

  /**
   * Sets the whole text in a monospaced font if it has code outside fences: a line that starts with a definition, here
   * or in the prompt.
   * @param {number} from
   */
  lookForCode(from) {
    if (this.isCode) return;
    if (from === 0) this.seen = `${this.lane.header?.prompt || ""}\n${this.lane.given}${this.seen}`;
    this.isCode = CODE.test(this.seen);
    this.seen = this.seen.slice(-80);
    if (this.isCode) this.element.classList.add("rv-code");
  }

  /** @param {number} index */
  markDivergence(index) {
    if (this.tokens[index]) this.tokens[index].classList.add("rv-mark");
  }

  // Marks the tokens for which AR would have chosen another one, as the next forward reports.
  markDamage() {
    const { tokens, steps } = this.lane;
    const end = Math.min(this.tokens.length, steps.at(-1)?.first ?? 0);
    for (; this.judged < end; this.judged += 1) {
      const { check, id } = tokens[this.judged];
      if (check && check.id !== id) this.tokens[this.judged].classList.add("rv-wrong");
    }
  }

  listen() {
    const { element } = this;
    element.addEventListener(
      "scroll",
      () => {
        const { isOwnScroll } = this;
        this.isOwnScroll = false;
        if (isOwnScroll) return; // already at the end; measuring would cause another layout
        this.isStuck = element.scrollHeight - element.scrollTop - element.clientHeight < 28;
      },
      { passive: true },
    );
    new ResizeObserver(() => {
      this.isBehind ||= this.isStuck; // rewrapping has moved the end
      this.follow();
    }).observe(element);
    element.addEventListener("click", (event) => {
      const index = targetOf(event).rvToken;
      if (index !== undefined && window.getSelection()?.isCollapsed) this.press(index, targetOf(event));
    });
    element.addEventListener("pointerover", (event) => this.point(targetOf(event), "pointer"));
    element.addEventListener("pointerleave", () => this.leave("pointer"));
    element.addEventListener("keydown", (event) => this.key(event));
    element.addEventListener("blur", () => this.leave("keyboard"));
  }

  /**
   * Chooses the forward of a token and pins the token's card.
   * @param {number} index
   * @param {HTMLElement} node
   */
  press(index, node) {
    this.report.choose(this.lane, this.lane.tokens[index].step.index);
    this.report.hold?.(this, index, node);
  }

  /**
   * @param {HTMLElement} target
   * @param {string} how
   */
  point(target, how) {
    const index = target.rvToken;
    if (index === undefined) return this.leave("pointer");
    this.highlight(this.lane.tokens[index].step.index);
    this.report.token(this, index, target, how);
    return undefined;
  }

  /** @param {string} how */
  leave(how) {
    if (how === "pointer" && this.at >= 0) return;
    this.setAt(-1);
    this.highlight(-1);
    this.report.leave(this);
  }

  /** @param {number} step */
  highlight(step) {
    if (this.lit) this.lit.classList.remove("rv-on");
    this.lit = this.chunks[step];
    if (this.lit) this.lit.classList.add("rv-on");
  }

  /**
   * Marks the chosen forward until another one, or none, is chosen.
   * @param {number} step
   */
  choose(step) {
    if (this.chosen) this.chosen.classList.remove("rv-chosen");
    this.chosen = this.chunks[step];
    if (this.chosen) this.chosen.classList.add("rv-chosen");
    if (this.chosen && this.chosen.offsetParent) this.reveal(this.chosen);
  }

  /** @param {number} index */
  setAt(index) {
    if (this.at >= 0 && this.tokens[this.at]) this.tokens[this.at].classList.remove("rv-at");
    this.at = index;
  }

  /**
   * Arrow keys move by token (left, right) and by forward (up, down); Enter chooses the forward, Escape deselects it.
   * @param {KeyboardEvent} event
   */
  key(event) {
    const { tokens, steps } = this.shown;
    const last = tokens.length - 1;
    if (event.key === "Escape") return this.leave("keyboard");
    if (last < 0 || event.ctrlKey || event.metaKey || event.altKey) return undefined;
    const at = this.at;
    const step = at >= 0 ? tokens[at].step.index : -1;
    if (event.key === "Enter" && step >= 0) return this.press(at, this.tokens[at]);
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
    this.isStuck = false;
    this.reveal(node);
    this.point(node, "keyboard");
  }

  /**
   * Scrolls a node into view without moving the page.
   * @param {HTMLElement} node
   */
  reveal(node) {
    const { element } = this;
    const top = placeIn(element, node);
    if (top < element.scrollTop || top + 60 > element.scrollTop + element.clientHeight) {
      element.scrollTop = top - element.clientHeight / 2;
    }
  }
}

const GROUP = 48; // forwards in a group
const AT_ONCE = 4; // hidden groups shown per call: laying out thousands of tokens at once would block the page

// The forwards of a text in groups, so that hundreds of them can be hidden or shown at once.
class Groups {
  /** @type {HTMLElement[]} */
  chunks = [];
  /** @type {Group[]} */
  groups = [];
  /** @type {HTMLElement} */
  segment;
  /** @type {Group} */
  group;

  /**
   * @param {HTMLElement} element
   * @param {HTMLElement} tail
   */
  constructor(element, tail) {
    this.element = element;
    this.tail = tail; // follows the last displayed forward
    /** @type {HTMLElement[]} */
    this.whole = []; // segments completed since the last call of show
    /** @type {HTMLElement[]} */
    this.drawn = []; // those completed before it, which are laid out
    this.newSegment();
  }

  // A block of its own, to keep layout local.
  newSegment() {
    if (this.segment) this.whole.push(this.segment);
    this.segment = span("rv-seg");
    this.element.append(this.segment);
    this.newGroup();
  }

  newGroup() {
    this.group = { node: make("span"), first: this.chunks.length, nodes: [], cut: 0 };
    this.groups.push(this.group);
    this.segment.append(this.group.node);
  }

  /**
   * Adds the nodes of one forward, its text last.
   * @param {HTMLElement[]} nodes
   */
  add(nodes) {
    if (this.group.nodes.length === GROUP) this.newGroup();
    this.group.node.append(...nodes);
    this.group.nodes.push(nodes);
    this.group.cut = -1;
    this.chunks.push(lastOf(nodes));
  }

  /**
   * Shows the first `num` forwards, starting at the end, where a reader looks. Returns whether all are shown now: after
   * a long jump this takes several calls.
   * @param {number} num
   */
  show(num) {
    this.rest();
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

  // Segments that were laid out in an earlier frame are rendered only while in view; they keep their height.
  rest() {
    for (const segment of this.drawn) segment.classList.add("rv-laid");
    this.drawn = this.whole;
    this.whole = [];
  }

  /** @param {number} num */
  placeTail(num) {
    const group = this.groups.findLast((each) => each.first <= num && each.nodes.length);
    const next = group && group.nodes[num - group.first];
    if (next) (group.cut ? next[0] : group.node).before(this.tail);
    else if (this.segment.lastChild !== this.tail) this.segment.append(this.tail);
  }
}

/**
 * Marks a group that is written from right to left, so that its gap and count are drawn on the other side.
 * @param {HTMLElement} group
 */
function markDirection(group) {
  group.classList.toggle("rv-rtl", isRightToLeft(group.textContent || ""));
}

/**
 * @param {HTMLElement} node
 * @param {boolean} isHidden
 */
function hide(node, isHidden) {
  if (node.hidden !== isHidden) node.hidden = isHidden;
}

// Marks of the time axis in a text: forward passes outside the zoomed span are dimmed, and a bar marks the token that this
// lane had written when the other lane ended. Only classes and attributes change, so nothing moves.
class TextRange {
  /** @param {TokenView} view */
  constructor(view) {
    this.view = view;
    /** @type {Span | null} */
    this.drawn = null;
    this.num = 0; // forward passes with an up-to-date class
    /** @type {HTMLElement | undefined} */
    this.marked = undefined;
  }

  /**
   * Dims the forward passes outside the span; null dims none.
   * @param {Span | null} span
   * @param {Clock} clock the clock that the span is measured on
   */
  draw(span, clock) {
    const { chunks, lane } = this.view;
    if (span === this.drawn && (!span || this.num === chunks.length)) return;
    const from = span === this.drawn ? this.num : 0;
    for (let i = from; i < chunks.length; i += 1)
      chunks[i].classList.toggle("rv-out", isOut(lane.steps[i], span, clock));
    this.drawn = span;
    this.num = chunks.length;
  }

  /**
   * Scrolls the first forward pass of the span into view.
   * @param {Span | null} span
   * @param {Clock} clock
   */
  reveal(span, clock) {
    const { chunks, lane } = this.view;
    const first = span ? lane.steps.findIndex((step) => !isOut(step, span, clock)) : -1;
    if (first >= 0 && chunks[first]?.offsetParent) this.view.reveal(chunks[first]);
  }

  /**
   * Marks the token that this lane had written when the other lane ended.
   * @param {{ first: Lane, tokens: number, time: number }} finish
   * @param {Clock} clock the clock of `time`
   */
  finish({ first, tokens, time }, clock) {
    const node = this.view.tokens[tokens - 1];
    if (!node) return;
    if (this.marked && this.marked !== node) {
      delete this.marked.dataset.finish;
      this.marked.removeAttribute("title");
    }
    this.marked = node;
    const title = `${first.title} finished here (${clock.write(time)})`;
    if (node.title === title) return;
    node.dataset.finish = `${first.title} finished`;
    node.title = title;
  }
}

/** @type {(step: Step, span: Span | null, clock: Clock) => boolean} */
const isOut = (step, span, clock) => Boolean(span && (clock.end(step) <= span.from || clock.begin(step) >= span.to));

// Ticks in the margin of a text, where a setting was changed.
class MoveMarks {
  /** @param {Lane} lane */
  constructor(lane) {
    this.lane = lane;
    this.num = 0; // moves with a tick
    this.node = make("span");
  }

  /**
   * Returns the tick before a step, if any. A move can still grow while a slider is dragged.
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
 * Returns the token for the count; -1 if none is visible, or the text since the previous count is too narrow.
 * @param {Token[]} tokens
 * @param {number} first
 * @param {number} count
 * @param {number} [before] the token with the previous count, -1 for none
 */
export function countPlace(tokens, first, count, before = -1) {
  let place = first + count - 1;
  while (place >= first && !INKED.test(tokens[place].text)) place -= 1;
  if (place < first) return -1;
  const between = tokens.slice(before + 1, place + 1).reduce((sum, { text }) => sum + text.length, 0);
  return before >= 0 && between <= String(count).length ? -1 : place;
}

/**
 * Whether a group begins with a space, which its gap can replace: after a line break it would hide the next letter.
 * @param {Token} token
 */
export const beginsWithSpace = (token) => /^[^\S\n]/.test(token.text);
