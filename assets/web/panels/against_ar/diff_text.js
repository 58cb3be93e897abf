// Two texts as one, aligned token by token: what both have, what only one has. Long equal parts are folded.
// Draws segments of `folds/diff.js`; colour, line and a word say whose they are.

import { shown, visible } from "../../core/bytes.js";
import { counted, whole } from "../../core/words.js";
import { make, put } from "../../core/dom.js";
import { aligned } from "../folds/diff.js";

const CONTEXT = 16; // tokens of a folded part that stay on each side
const FOLD = 48; // parts longer than this are folded

export class DiffText {
  /**
   * names: what to call the first and the second text.
   * @param {[string, string]} names
   */
  constructor(names) {
    this.names = names;
    this.element = make("div", "rv-df");
    this.title = make("h4");
    this.text = make("div", "rv-df-text");
    this.text.tabIndex = 0;
    this.text.setAttribute("role", "group");
    this.text.setAttribute("aria-label", "Both texts aligned");
    this.element.append(this.title, this.text);
    this.unfolded = new Set();
  }

  /**
   * @param {Lane | null} lane
   * @param {Lane | undefined} other
   */
  draw(lane, other) {
    const segments =
      lane?.tokens.length && other?.tokens.length
        ? aligned(
            lane.tokens.map((token) => token.id),
            other.tokens.map((token) => token.id),
          )
        : [];
    this.element.hidden = segments.every((segment) => segment.kind === "both");
    if (this.element.hidden || !lane || !other) return;
    markAhead(segments, lane, other);
    put(this.title, summary(segments, this.names));
    const top = this.text.scrollTop;
    this.text.replaceChildren(...segments.flatMap((segment) => this.nodes(segment, lane, other)));
    this.text.scrollTop = top;
  }

  /**
   * @param {Segment} segment
   * @param {Lane} lane
   * @param {Lane} other
   */
  nodes(segment, lane, other) {
    const { kind, a, b, num } = segment;
    if (kind === "both") return this.both(lane, a, num);
    const source = kind === "first" ? lane : other;
    const text = oneText(source, kind === "first" ? a : b, num);
    const node = make("span", segment.isAhead ? "rv-df-ahead" : `rv-df-${kind}`);
    const word = this.names[kind === "first" ? 0 : 1];
    node.append(make("span", "rv-df-word", segment.isAhead ? `${word} is ahead` : word), make("span", "", text));
    return [node];
  }

  /**
   * @param {Lane} lane
   * @param {number} from
   * @param {number} num
   */
  both(lane, from, num) {
    /**
     * @param {number} start
     * @param {number} end
     */
    const text = (start, end) => make("span", "rv-df-both", shown(lane.tokens.slice(start, end).map(textOf).join("")));
    const end = from + num;
    if (num <= FOLD || this.unfolded.has(from)) return [text(from, end)];
    const head = from === 0 ? from : from + CONTEXT;
    const button = make("button", "rv-df-fold rv-num", `… ${counted(end - CONTEXT - head, "token")} in both …`);
    button.type = "button";
    button.addEventListener("click", () => {
      this.unfolded.add(from);
      button.replaceWith(text(head, end - CONTEXT));
    });
    return [...(head > from ? [text(from, head)] : []), button, text(end - CONTEXT, end)];
  }
}

/** @param {Token} token */
const textOf = (token) => (token.isEnd ? " ■" : token.text);

/**
 * White space alone, and bytes that are no character, would not be seen.
 * @param {Lane} lane
 * @param {number} from
 * @param {number} num
 */
function oneText(lane, from, num) {
  const tokens = lane.tokens.slice(from, from + num);
  const text = tokens.map(textOf).join("");
  if (!text) return tokens.map((token) => lane.tokenName(token.id)).join("");
  return text.trim() ? shown(text) : visible(text);
}

/**
 * While a run is not over, what the other has more at its end is no difference yet.
 * @param {Segment[]} segments
 * @param {Lane} lane
 * @param {Lane} other
 */
function markAhead(segments, lane, other) {
  for (const segment of segments.slice(segments.findLastIndex((each) => each.kind === "both") + 1)) {
    segment.isAhead = !(segment.kind === "first" ? other : lane).end;
  }
}

/**
 * @param {Segment[]} segments
 * @param {[string, string]} given
 */
function summary(segments, [first, second]) {
  /** @param {string} kind */
  const count = (kind) =>
    segments.filter((each) => each.kind === kind && !each.isAhead).reduce((sum, each) => sum + each.num, 0);
  return `Aligned: ${counted(count("both"), "token")} in both, ${whole(count("first"))} only in ${first}, ${whole(count("second"))} only in ${second}`;
}
