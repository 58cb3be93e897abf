// The token view of one lane: appends spans, never rebuilds; one tab stop, arrows inside.
// Knows a Lane and its own element; what a card says or a chart shows is told to `report`.

import { short, shown } from "../common/bytes.js";

const SEGMENT = 160; // tokens after which a line break starts a new block, so that layout stays local
const CODE = /```|\n(?:def|class) \w+.*:\n/;

const span = (className, text) => {
  const node = document.createElement("span");
  node.className = className;
  if (text) node.textContent = text;
  return node;
};

export class TokenView {
  constructor(element, lane, isFollowing, report) {
    this.element = element;
    this.lane = lane;
    this.report = report;
    this.tokens = [];
    this.chunks = [];
    this.at = -1;
    this.moves = 0;
    this.isStuck = isFollowing;
    this.tail = span("rv-tail");
    this.tail.setAttribute("aria-hidden", "true");
    this.newSegment();
    this.listen();
  }

  newSegment() {
    this.segment = span("rv-seg");
    this.segmentStart = this.tokens.length;
    this.element.append(this.segment);
    this.segment.append(this.tail);
  }

  // Draws what the lane has learnt since the last call.
  append() {
    const { lane } = this;
    const before = this.tokens.length;
    if (before === 0 && lane.end) this.isStuck = false; // it came whole: reading starts at the top
    if (before === 0 && lane.given && !this.given) {
      this.given = span("rv-given", shown(lane.given));
      this.given.title = "given: decoding began behind it";
      this.segment.prepend(this.given);
    }
    let fragment = document.createDocumentFragment();
    for (let i = this.chunks.length; i < lane.steps.length; i += 1) {
      const step = lane.steps[i];
      this.appendMoves(fragment, step);
      fragment.append(this.chunk(step));
      const last = lane.tokens[step.first + step.count - 1];
      if (last && last.text.endsWith("\n") && this.tokens.length - this.segmentStart > SEGMENT) {
        this.segment.insertBefore(fragment, this.tail);
        fragment = document.createDocumentFragment();
        this.newSegment();
      }
    }
    this.segment.insertBefore(fragment, this.tail);
    this.drawTail();
    this.lookForCode(before);
    if (this.isStuck && !this.lit) this.element.scrollTop = this.element.scrollHeight;
  }

  chunk(step) {
    const node = span(`rv-c rv-n${Math.min(step.count, 5)}`);
    for (let i = step.first; i < step.first + step.count; i += 1) {
      const token = this.lane.tokens[i];
      const child = span(token.isEnd ? "rv-t rv-eos" : "rv-t", shown(token.text));
      if (token.joins >= 0) this.tokens[token.joins].textContent = shown(this.lane.tokens[token.joins].text);
      if (token.isEnd) child.title = "end of the text";
      child.rvToken = i;
      node.append(child);
      this.tokens.push(child);
    }
    if (step.count > 1) {
      node.dataset.n = String(step.count);
      this.count(step);
    }
    this.chunks.push(node);
    return node;
  }

  // How many tokens, written under the last of them that has ink.
  count(step) {
    let place = step.first + step.count - 1;
    while (place > step.first && !/\S$/.test(this.lane.tokens[place].text)) place -= 1;
    if (/\S$/.test(this.lane.tokens[place].text)) this.tokens[place].dataset.k = String(step.count);
  }

  // A tick in the margin where a slider bit. The same move may still grow while it is dragged.
  appendMoves(fragment, step) {
    const { moves } = this.lane;
    if (this.moveNode && this.move.until >= step.index) this.moveNode.textContent = moveText(this.move);
    while (this.moves < moves.length && moves[this.moves].step <= step.index) {
      this.move = moves[this.moves];
      this.moveNode = span("rv-move", moveText(this.move));
      this.moveNode.title = `${moveText(this.move)} from forward ${this.move.step + 1} on`;
      this.moveNode.setAttribute("aria-hidden", "true");
      fragment.append(this.moveNode);
      this.moves += 1;
    }
  }

  drawTail() {
    const ghosts = this.lane.ghosts();
    const nodes = [];
    if (this.lane.end) {
      const rest = this.lane.tokens.findLast((t) => !t.isEnd);
      if (rest && rest.rest) nodes.push(span("rv-t", shown(rest.rest)));
    } else if (this.lane.steps.length) nodes.push(span("rv-frontier"));
    if (ghosts && ghosts.drafts) nodes.push(span("rv-draft", shown(ghosts.drafts)));
    if (ghosts && ghosts.refused) nodes.push(span("rv-ghost", shown(ghosts.refused)));
    this.tail.replaceChildren(...nodes);
  }

  // Code is set in a monospaced face: a fence or a definition at the start of a line, here or in the prompt.
  lookForCode(from) {
    if (this.isCode) return;
    if (from === 0) this.seen = `${(this.lane.header && this.lane.header.prompt) || ""}\n${this.lane.given}`;
    this.seen += this.lane.tokens.slice(from).map((t) => t.text).join("");
    this.isCode = CODE.test(this.seen);
    this.seen = this.seen.slice(-80);
    if (this.isCode) this.element.classList.add("rv-code");
  }

  markDivergence(index) {
    if (this.tokens[index]) this.tokens[index].classList.add("rv-mark");
  }

  listen() {
    const { element } = this;
    element.addEventListener("scroll", () => {
      this.isStuck = element.scrollHeight - element.scrollTop - element.clientHeight < 28;
    }, { passive: true });
    element.addEventListener("pointerover", (event) => this.point(event.target, "pointer"));
    element.addEventListener("pointerleave", () => this.leave("pointer"));
    element.addEventListener("keydown", (event) => this.key(event));
    element.addEventListener("blur", () => this.leave("keyboard"));
  }

  point(target, how) {
    const index = target.rvToken;
    if (index === undefined) return this.leave("pointer");
    this.highlight(this.lane.tokens[index].step.index);
    this.report.token(this, index, target, how);
    return undefined;
  }

  leave(how) {
    if (how === "pointer" && this.at >= 0) return;
    this.setAt(-1);
    this.highlight(-1);
    this.report.leave(this);
  }

  highlight(step) {
    if (this.lit) this.lit.classList.remove("rv-on");
    this.lit = this.chunks[step];
    if (this.lit) this.lit.classList.add("rv-on");
  }

  setAt(index) {
    if (this.at >= 0 && this.tokens[this.at]) this.tokens[this.at].classList.remove("rv-at");
    this.at = index;
  }

  // Arrows move by token (left, right) and by forward (up, down); Escape lets go.
  key(event) {
    const last = this.tokens.length - 1;
    if (event.key === "Escape") return this.leave("keyboard");
    if (last < 0 || event.ctrlKey || event.metaKey || event.altKey) return undefined;
    const at = this.at;
    const step = at >= 0 ? this.lane.tokens[at].step.index : -1;
    const firstOf = (i) => this.lane.steps[Math.max(0, Math.min(i, this.chunks.length - 1))].first;
    const targets = { ArrowRight: at + 1, ArrowLeft: at < 0 ? last : at - 1, ArrowDown: firstOf(step + 1),
      ArrowUp: firstOf(step - 1), Home: 0, End: last };
    if (!(event.key in targets)) return undefined;
    event.preventDefault();
    this.go(Math.max(0, Math.min(last, targets[event.key])));
    return undefined;
  }

  go(index) {
    this.setAt(index);
    const node = this.tokens[index];
    node.classList.add("rv-at");
    this.isStuck = false;
    this.reveal(node);
    this.point(node, "keyboard");
  }

  // Brings a node into sight, without moving the page.
  reveal(node) {
    const { element } = this;
    const top = node.offsetTop;
    if (top < element.scrollTop || top + 60 > element.scrollTop + element.clientHeight) {
      element.scrollTop = top - element.clientHeight / 2;
    }
  }
}

// What a move changed, as short as a margin allows.
export function moveText({ settings, before }) {
  const parts = [];
  if (settings.tau !== before.tau) parts.push(`τ ${short(settings.tau)}`);
  if (settings.block_size !== before.block_size) parts.push(`B ${settings.block_size}`);
  if (settings.lossless !== before.lossless) parts.push(settings.lossless ? "lossless" : "τ only");
  if (settings.metric !== before.metric) parts.push(settings.metric);
  if (settings.method !== before.method) parts.push(settings.method === "ar" ? "AR" : "MARS");
  return parts.join(" ") || "moved back";
}
