// The answers side by side: each text with its differences from the other, its tokens grouped by pass, and a strip of
// all its passes. Masked answers show only words and differences, so that nothing identifies the method.

import { attribute, make, shape } from "../../core/dom.js";
import { counted, figure, joined } from "../../core/words.js";
import { placesOf, runsOf, stripOf, wordsOf } from "./align.js";
import { titleOf } from "./rows.js";

const KINDS = {
  different: "different words",
  missing: "missing words",
  added: "added words",
  doubled: "doubled words",
};

export const LEGEND = {
  masked: "Wavy: not in the other answer. Caret: the other answer has words here.",
  shown:
    "Bars: one per pass, wider for more tokens, orange where AR would differ. Shaded: several tokens of one pass. Wavy: not in the other answer. Caret: the other answer has words here.",
};

/**
 * Returns a warning that prompts were already shown with visible labels; "" if none were.
 * @param {number} num number of these prompts in the set
 */
export const seenText = (num) =>
  num
    ? ` You have seen the labels of ${counted(num, "prompt")} of this set; votes on ${num > 1 ? "them" : "it"} are marked as unblinded.`
    : "";

/** @type {(isMasked: boolean) => string} */
export const nothingText = (isMasked) =>
  isMasked ? "Both methods wrote the same texts, so all prompts count as ties." : "This set has no prompts.";

/**
 * Returns the two columns of a masked pair, which contain only the texts.
 * @param {MaskedPrompt} hidden
 * @returns {ReviewShown[]}
 */
export function maskedColumns({ left, right }) {
  const bare = { way: -1, answer: null, mark: null };
  return [
    { ...bare, name: "Left", side: "left", text: left },
    { ...bare, name: "Right", side: "right", text: right },
  ];
}

/**
 * @param {ReviewAbout} about
 * @param {ReviewPrompt} prompt
 * @param {number} left index of a method
 * @param {number} right index of another method
 */
export const pairColumns = (about, prompt, left, right) => [
  columnOf(about, prompt, left, "left"),
  columnOf(about, prompt, right, "right"),
];

/**
 * Returns the columns of the reference and all other methods.
 * @param {ReviewAbout} about
 * @param {ReviewPrompt} prompt
 * @param {number} other the method that is compared with the reference
 */
export function allColumns(about, prompt, other) {
  const others = about.ways.flatMap((_, way) => (way === about.reference ? [] : [way]));
  const columns = others.map((way) => columnOf(about, prompt, way, way === other ? "right" : ""));
  return [columnOf(about, prompt, about.reference, "left"), ...columns];
}

/**
 * @param {ReviewAbout} about
 * @param {ReviewPrompt} prompt
 * @param {number} way
 * @param {"left" | "right" | ""} side
 * @returns {ReviewShown}
 */
function columnOf({ ways, reference }, { answers, marks }, way, side) {
  const [answer, checks] = [answers[way], marks[way]];
  const mark = answer && checks && { ...checks, isReference: way === reference };
  return { name: titleOf(ways[way].name), way, side, text: answer?.text ?? "", answer, mark };
}

/**
 * Returns the nodes of a question: its id and category, earlier turns, the prompt, and the dataset's reference answer.
 * @param {ReviewAsked} asked
 * @param {boolean} isMasked
 */
export function askedNodes({ id, prompt, system, category, turns, reference }, isMasked) {
  const before = [...(system ? [["system", system]] : []), ...turns];
  const parts = before.map(([role, text]) => make("p", "rw-before", make("b", "", role), ` ${text}`));
  const head = make("p", "rw-item", joined(id, category.replaceAll("_", " ")));
  const attributes = { class: "rw-prompt", tabindex: "0", role: "region", "aria-label": "Prompt" };
  const nodes = [head, ...parts, make("div", attributes, prompt)];
  if (!reference || isMasked) return nodes;
  return [...nodes, make("details", "rw-reference", make("summary", "", "Reference answer"), reference)];
}

export class Reading {
  /** @type {ReviewPlace[]} */
  places = [];
  at = -1; // index of the current difference

  /**
   * report.open: shows an answer in the Live tab, with all its panels.
   * @param {HTMLElement} element
   * @param {{ open(way: number): void }} report
   */
  constructor(element, report) {
    this.element = element;
    this.report = report;
  }

  /**
   * Shows the columns. Each text is aligned with the first one, and the differences of the compared pair are marked in
   * both.
   * @param {ReviewShown[]} shown
   */
  show(shown) {
    this.at = -1;
    const pair = shown.filter(({ side }) => side);
    const [left, right] = pair.map(({ text }) => wordsOf(text));
    this.places = left && right ? placesOf(left, right) : [];
    this.columns = shown.map((column) => this.column(column, pair[0], left));
    this.element.replaceChildren(...this.columns);
    this.element.dataset.columns = String(shown.length);
  }

  /**
   * @param {ReviewShown} shown
   * @param {ReviewShown} first
   * @param {ReviewWord[]} base
   */
  column(shown, first, base) {
    const { name, side, text, answer, mark } = shown;
    const words = wordsOf(text);
    const places = side ? this.places : placesOf(base, words);
    const isFirst = shown === first;
    const spans = places.map(({ a, numA, b, numB }) => (isFirst ? { from: a, num: numA } : { from: b, num: numB }));
    const runs = runsOf(text, answer, words, spans);
    const body = make("div", "rw-text", ...nodesOf(runs, places, isFirst));
    const head = make("div", "rw-colhead", make("h3", "", name));
    if (answer?.pieces.length) head.append(this.opener(shown));
    const column = make("article", { class: "rw-answer", "data-side": side }, head);
    if (mark) column.append(make("p", "rw-marks rv-num", marksText(mark)));
    if (answer?.pieces.length) column.append(stripFor(answer, name, body));
    column.append(body);
    return column;
  }

  /** @param {ReviewShown} shown */
  opener({ way, name }) {
    const attributes = { class: "rw-open", type: "button", "aria-label": `Open ${name} in Live` };
    const node = make("button", attributes, "Open in Live");
    node.addEventListener("click", () => this.report.open(way));
    return node;
  }

  get said() {
    const { length } = this.places;
    return length ? `${counted(length, "difference")}; press N for the next.` : "The words are identical.";
  }

  // Scrolls both texts to the next or previous difference. Returns a sentence about it for the status line.
  /** @param {number} by */
  step(by) {
    const { length } = this.places;
    if (!length) return "";
    this.at = this.at < 0 ? (by > 0 ? 0 : length - 1) : (this.at + by + length) % length;
    for (const node of this.element.querySelectorAll(".rw-now")) node.classList.remove("rw-now");
    for (const column of this.element.querySelectorAll(".rw-answer:not([data-side=''])")) {
      const nodes = [...column.querySelectorAll(`[data-place="${this.at}"]`)];
      for (const node of nodes) node.classList.add("rw-now");
      if (nodes[0]) scrollToNode(nodes[0]);
    }
    return `Difference ${this.at + 1} of ${length}: ${KINDS[this.places[this.at].kind]}.`;
  }
}

/**
 * Scrolls a text so that a node is in its middle, and the page as little as needed to make the node visible.
 * @param {Element} node
 */
function scrollToNode(node) {
  const text = /** @type {HTMLElement} */ (node.closest(".rw-text"));
  const [nodeBox, textBox] = [node.getBoundingClientRect(), text.getBoundingClientRect()];
  text.scrollTop += nodeBox.top - textBox.top - text.clientHeight / 2;
  node.scrollIntoView({ block: "nearest", inline: "nearest" });
}

/**
 * @param {ReviewRun[]} runs
 * @param {ReviewPlace[]} places
 * @param {boolean} isFirst
 */
function nodesOf(runs, places, isFirst) {
  /** @type {HTMLElement[]} */
  const groups = [];
  let open = -2;
  for (const run of runs) {
    if (run.group !== open || run.group < 0) {
      const n = Math.min(run.size, 5);
      groups.push(make("span", run.group < 0 ? "rw-group" : `rw-group rw-n${n}`));
      if (run.group >= 0) attribute(groups[groups.length - 1], { "data-group": run.group });
      open = run.group;
    }
    groups[groups.length - 1].append(...pieces(run, places, isFirst));
  }
  return groups;
}

/**
 * @param {ReviewRun} run
 * @param {ReviewPlace[]} places
 * @param {boolean} isFirst
 */
function pieces({ text, place, gap, otherwise }, places, isFirst) {
  const nodes = [];
  if (gap >= 0) {
    const kind = places[gap].kind === "doubled" ? "doubled" : isFirst ? "added" : "missing";
    nodes.push(
      make("span", {
        class: "rw-gap",
        "data-place": gap,
        "data-kind": kind,
        title: "The other answer has words here",
      }),
    );
  }
  if (place < 0 && otherwise === null) return [...nodes, text];
  /** @type {Attributes} */
  const attributes = { class: "rw-run" };
  if (place >= 0) Object.assign(attributes, { "data-place": place, "data-kind": places[place].kind });
  if (otherwise !== null) {
    attributes.class += " rw-otherwise";
    attributes.title = `AR would write: ${otherwise}`;
  }
  return [...nodes, make("span", attributes, text)];
}

/**
 * Draws a bar for each pass, as wide as its number of tokens, with a tick if AR would have chosen another token.
 * Pressing a bar scrolls the text to the pass.
 * @param {ReviewAnswer} answer
 * @param {string} name
 * @param {HTMLElement} text
 */
function stripFor(answer, name, text) {
  const forwards = stripOf(answer);
  const others = forwards.filter(({ isOtherwise }) => isOtherwise).length;
  const num = answer.groups.reduce((sum, size) => sum + size, 0);
  const label = joined(
    `${name}: ${counted(forwards.length, "pass", "passes")} for ${counted(num, "token")}`,
    others ? `AR would differ in ${others}` : "",
  );
  const attributes = {
    class: "rw-strip",
    role: "img",
    "aria-label": label,
    viewBox: `0 0 ${num} 10`,
    preserveAspectRatio: "none",
  };
  const strip = shape("svg", attributes);
  let at = 0;
  forwards.forEach(({ size, isOtherwise }, group) => {
    const bar = { class: `rw-b${Math.min(size, 5)}`, x: at, y: 3, width: size, height: 7, "data-group": group };
    strip.append(shape("rect", bar));
    if (isOtherwise)
      strip.append(shape("rect", { class: "rw-tick", x: at, y: 0, width: size, height: 2.4, "data-group": group }));
    at += size;
  });
  strip.addEventListener("click", (event) => {
    const { group } = /** @type {SVGElement} */ (event.target).dataset;
    const node = group === undefined ? null : text.querySelector(`[data-group="${group}"]`);
    if (!node) return;
    for (const lit of text.querySelectorAll(".rw-lit")) lit.classList.remove("rw-lit");
    node.classList.add("rw-lit");
    scrollToNode(node);
  });
  return strip;
}

/**
 * Describes the results of the automatic checks of an answer in one line.
 * @param {ReviewMark & { isReference: boolean }} mark
 */
function marksText(mark) {
  const differs = mark.word === null ? "same words, different spacing" : `different from word ${mark.word + 1} onwards`;
  const same = mark.isReference ? "the reference" : mark.is_same ? "same text" : differs;
  return joined(
    same,
    mark.tpf === null ? "" : `${figure(mark.tpf)} tokens per pass`,
    mark.is_looped ? "starts to repeat itself" : "",
    mark.is_right === null ? "" : mark.is_right ? "✓ right (checked)" : "✗ wrong (checked)",
    mark.end === "limit" ? "stopped at the limit" : "",
  );
}
