// The picture of the attention mask in training: the visitor chooses a query, and its keys are shown. Sliders change
// the length, the prompt's length and B.

import { group, indexForKey, make, put, shape } from "../core/dom.js";
import { keyList, knob } from "./parts.js";

const CELL = 20; // side of a cell in pixels
const GAP = 10; // gap between the clean and the noisy stream
const EDGE = 34; // space for the labels
/** @type {[name: "length" | "prompt" | "blockSize", label: string, least: number, most: number][]} */
const KNOBS = [
  ["length", "Tokens, L", 4, 24],
  ["prompt", "prompt tokens", 0, 12],
  ["blockSize", "Block size, B", 1, 8],
];
const LEGEND = [
  ["clean", "clean query, clean key: plain causal attention, the AR half"],
  ["past", "mask query, clean key: the text before its block"],
  ["own", "mask query, mask key: its own block, up to itself"],
  ["none", "not seen"],
];

export class MaskView {
  /** @type {MaskSlot[]} */
  slots;
  /** @type {boolean[][]} */
  grid;
  /** @type {SVGSVGElement} */
  svg;
  /** @type {HTMLElement[]} */
  cells;
  /** @type {SVGRectElement} */
  row;
  /** @type {number} */
  at;
  /** @type {SVGPathElement} */
  lit;

  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.values = { length: 12, prompt: 4, blockSize: 4 };
    this.picture = group(
      "ex-mask",
      "Attention mask. Up and down arrows choose a query, left and right change between the clean and the noisy stream.",
    );
    this.inputs = Object.fromEntries(
      KNOBS.map(([name, label, min, max]) => {
        const attributes = { min, max, value: this.values[name], step: 1, name };
        return [name, knob(label, attributes, (value) => this.turn(name, value))];
      }),
    );
    const knobs = make("div", "ex-knobs", ...Object.values(this.inputs).map(({ row }) => row));
    this.strips = make("div", "ex-streams");
    this.said = make("p", { class: "ex-said", "aria-live": "polite" });
    element.classList.add("ex-training");
    element.append(this.picture, make("div", "ex-side", knobs, this.strips, this.said, keyList(LEGEND)));
    this.picture.addEventListener("pointermove", (event) => this.point(event));
    this.picture.addEventListener("keydown", (event) => this.key(event));
    this.rebuild();
    this.choose(this.slots.findIndex((slot) => slot.isNoisy) + 2);
  }

  /**
   * @param {"length" | "prompt" | "blockSize"} name
   * @param {number} value
   */
  turn(name, value) {
    this.values[name] = value;
    const most = this.values.length - 1;
    this.inputs.prompt.input.max = String(Math.min(most, 12));
    this.values.prompt = Math.min(this.values.prompt, most);
    for (const [knobName] of KNOBS) {
      const { input, output } = this.inputs[knobName];
      input.value = String(this.values[knobName]);
      put(output, String(this.values[knobName]));
    }
    const { isNoisy, position } = this.slots[this.at];
    this.rebuild();
    const same = this.slots.findIndex((slot) => slot.isNoisy === isNoisy && slot.position === position);
    this.choose(same >= 0 ? same : this.slots.length - 1);
  }

  rebuild() {
    const { length, prompt, blockSize } = this.values;
    this.slots = streams(length, prompt, blockSize);
    this.grid = this.slots.map((query) => this.slots.map((key) => sees(query, key)));
    this.drawStrips();
    this.drawGrid();
  }

  /**
   * Returns the coordinate at which row or column `i` begins. There is a gap before the noisy stream.
   * @param {number} i
   */
  offset(i) {
    return EDGE + i * CELL + (i >= this.values.length ? GAP : 0);
  }

  drawGrid() {
    const size = this.offset(this.slots.length) + 2;
    this.svg = shape("svg", { viewBox: `0 0 ${size} ${size}`, "aria-hidden": "true" });
    const paths = { none: "", clean: "", past: "", own: "" };
    this.grid.forEach((row, q) =>
      row.forEach((isSeen, k) => {
        const kind = !isSeen ? "none" : !this.slots[q].isNoisy ? "clean" : this.slots[k].isNoisy ? "own" : "past";
        paths[kind] += this.square(q, k);
      }),
    );
    for (const [kind, d] of Object.entries(paths)) this.svg.append(shape("path", { class: `ex-${kind}`, d }));
    this.slots.forEach((slot, i) => this.label(slot, i));
    this.lit = shape("path", { class: "ex-lit", d: "" });
    this.row = shape("rect", { class: "ex-row", x: EDGE - 2, width: size - EDGE, height: CELL });
    this.svg.append(this.lit, this.row);
    this.picture.replaceChildren(this.svg);
  }

  /**
   * @param {number} q
   * @param {number} k
   * @param {number} [inset]
   */
  square(q, k, inset = 1) {
    const side = CELL - 2 * inset;
    return `M${this.offset(k) + inset} ${this.offset(q) + inset}h${side}v${side}h-${side}z`;
  }

  /**
   * @param {MaskSlot} slot
   * @param {number} i
   */
  label(slot, i) {
    const middle = this.offset(i) + CELL / 2;
    const text = slot.isNoisy ? `m${slot.position}` : String(slot.position);
    const className = `${slot.isNoisy ? "ex-mlabel" : ""} ${text.length > 2 ? "ex-long" : ""}`;
    this.svg.append(
      shape("text", { class: className, x: EDGE - 6, y: middle + 3.5, "text-anchor": "end" }, text),
      shape("text", { class: className, x: middle, y: EDGE - 8, "text-anchor": "middle" }, text),
    );
  }

  // Draws the two streams as strips of slots, in which the keys of the chosen query are highlighted.
  drawStrips() {
    const { length, prompt } = this.values;
    this.cells = [];
    /** @type {[name: string, from: number, to: number][]} */
    const streamed = [
      ["clean", 0, length],
      ["noisy", prompt, length],
    ];
    const rows = streamed.map(([name, from, to]) => {
      const row = make("div", { class: "ex-stream", style: `--n: ${length}` }, make("span", "ex-name", name));
      for (let t = from; t < to; t += 1) {
        const cell = make(
          "span",
          `ex-slot ${name === "noisy" ? "ex-masked" : t < prompt ? "ex-prompt" : ""}`,
          name === "noisy" ? "M" : `x${t}`,
        );
        cell.style.gridColumn = String(t + 2);
        const slot = this.slots[this.cells.length];
        if (slot.block >= 0 && slot.block % 2) cell.classList.add("ex-odd");
        const index = this.cells.length;
        cell.addEventListener("pointerenter", () => this.choose(index));
        this.cells.push(cell);
        row.append(cell);
      }
      return row;
    });
    this.strips.replaceChildren(...rows);
  }

  /** @param {PointerEvent} event */
  point(event) {
    const box = this.svg.getBoundingClientRect();
    const y = ((event.clientY - box.top) / box.height) * this.svg.viewBox.baseVal.height;
    const index = this.slots.findIndex((_, i) => y >= this.offset(i) && y < this.offset(i) + CELL);
    if (index >= 0) this.choose(index);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { length, prompt } = this.values;
    const slot = this.slots[this.at];
    const other = slot.isNoisy ? slot.position : slot.position >= prompt ? length + slot.position - prompt : this.at;
    const last = this.slots.length - 1;
    const [above, below] = [this.at - 1, this.at + 1];
    const index = indexForKey(
      event,
      { ArrowUp: above, ArrowDown: below, ArrowLeft: other, ArrowRight: other, Home: 0, End: last },
      last,
    );
    if (index !== null) this.choose(index);
  }

  /** @param {number} index */
  choose(index) {
    if (index === this.at && this.row.hasAttribute("y")) return;
    this.at = index;
    const keys = this.grid[index].flatMap((isSeen, k) => (isSeen ? [k] : []));
    this.lit.setAttribute("d", keys.map((k) => this.square(index, k, 6)).join(""));
    this.row.setAttribute("y", String(this.offset(index)));
    this.cells.forEach((cell, i) => {
      cell.classList.toggle("ex-seen", this.grid[index][i]);
      cell.classList.toggle("ex-asks", i === index);
    });
    this.picture.dataset.query = String(index);
    put(this.said, sentence(this.slots[index], this.values));
  }
}

/** @type {(name: string, from: number, to: number) => string} */
const span = (name, from, to) => (from > to ? "" : from === to ? `${name}${from}` : `${name}${from} to ${name}${to}`);

/**
 * @param {MaskSlot} slot
 * @param {{ length: number, prompt: number, blockSize: number }} values
 */
function sentence({ isNoisy, position, block }, { length, prompt, blockSize }) {
  const learns = position + 1 < length ? `x${position + 1}` : "what follows the last token";
  if (!isNoisy) {
    const role =
      position + 1 < prompt
        ? "It is inside the prompt, where no loss is computed."
        : `It learns ${learns}, as AR does.`;
    return `Clean x${position} sees ${span("x", 0, position)}. ${role}`;
  }
  const begin = prompt + block * blockSize;
  const clean = span("x", 0, begin - 1) || "no clean token";
  return `Mask m${position}, of block ${block}, sees ${clean} and ${span("m", begin, position)}, but no clean token of its own block. It learns ${learns}.`;
}

/**
 * Returns the slots of one training row, which are its queries and keys, as in mars_runtime/lab/training/streams.py:
 * the clean stream, then the noisy stream with a mask for each position of the response. block: number of the slot's
 * block, -1 in the prompt.
 * @param {number} length
 * @param {number} prompt
 * @param {number} blockSize
 * @returns {MaskSlot[]}
 */
function streams(length, prompt, blockSize) {
  const clean = Array.from({ length }, (_, position) => {
    const block = Math.max(-1, Math.floor((position - prompt) / blockSize));
    return { isNoisy: false, position, block };
  });
  return [...clean, ...clean.slice(prompt).map((slot) => ({ ...slot, isNoisy: true }))];
}

/**
 * Returns whether a query may attend to a key.
 * @param {MaskSlot} query
 * @param {MaskSlot} key
 */
function sees(query, key) {
  if (!query.isNoisy) return !key.isNoisy && key.position <= query.position;
  if (!key.isNoisy) return key.block < query.block;
  return key.block === query.block && key.position <= query.position;
}
