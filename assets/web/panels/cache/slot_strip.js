// The cache as a strip of slots: long final parts in one piece, then slot by slot, the cursor between.
// One tab stop, arrow keys read the slots; state is said by colour, line and a word.

import { whole } from "../../core/words.js";
import { make, put, targetOf } from "../../core/dom.js";

const HINT = "Point at a slot, or focus the strip and use the arrow keys.";
const LEGEND = [
  ["final", "final: keys and values that stay"],
  ["pending", "fed again as a real token"],
  ["draft", "draft for AR to judge"],
  ["mask", "mask: scratch, overwritten"],
];

export class SlotStrip {
  /** @type {HTMLElement[]} */
  nodes;
  /** @type {(Slot & { text: string, say: string })[]} */
  slots;
  /** @type {Record<string, HTMLElement>} */
  pieces;
  /** @type {HTMLElement | undefined} */
  lit;

  constructor() {
    this.element = make("div", "rv-ca-strip");
    this.row = make("div", "rv-ca-slots");
    this.row.tabIndex = 0;
    this.row.setAttribute("role", "group");
    this.row.setAttribute("aria-label", "Slots of the cache. Left and right arrows read them.");
    this.cursor = make("span", "rv-ca-cursor rv-num");
    this.pieces = {
      prompt: make("span", "rv-ca-piece rv-num"),
      output: make("span", "rv-ca-piece rv-num"),
      free: make("span", "rv-ca-piece rv-ca-free rv-num"),
    };
    this.readout = make("p", "rv-ca-say rv-num", HINT);
    this.readout.setAttribute("aria-live", "polite");
    const legend = make("p", "rv-ca-legend");
    for (const [state, text] of LEGEND) {
      const item = make("span");
      const swatch = make("i", "rv-ca-slot");
      swatch.dataset.state = state;
      item.append(swatch, text);
      legend.append(item);
    }
    this.element.append(this.row, this.readout, legend);
    this.nodes = [];
    this.at = -1;
    this.listen();
  }

  /**
   * hidden: slots that are drawn as one piece each; slots: with text and say; free: slots behind.
   * @param {{ hidden: { prompt: number, output: number }, slots: (Slot & { text: string, say: string })[], cursor: number, free: number }} cache
   */
  draw({ hidden, slots, cursor, free }) {
    this.slots = slots;
    this.piece("prompt", hidden.prompt, "prompt");
    this.piece("output", hidden.output, "final");
    this.piece("free", free, "free");
    put(this.cursor, `cursor ${whole(cursor)}`);
    while (this.nodes.length > slots.length) this.nodes.pop();
    while (this.nodes.length < slots.length) this.nodes.push(make("span", "rv-ca-slot"));
    slots.forEach((slot, i) => {
      this.nodes[i].dataset.state = slot.state === "prompt" ? "final" : slot.state;
      this.nodes[i].classList.toggle("rv-ca-nameless", slot.state === "prompt" && slot.text === "·");
      put(this.nodes[i], slot.text);
    });
    const split = slots.findIndex((slot) => slot.state !== "final" && slot.state !== "prompt");
    const order = [
      this.pieces.prompt,
      this.pieces.output,
      ...this.nodes.slice(0, split),
      this.cursor,
      ...this.nodes.slice(split),
      this.pieces.free,
    ];
    const isSame = order.length === this.row.children.length && order.every((node, i) => this.row.children[i] === node);
    if (!isSame) this.row.replaceChildren(...order);
    this.point(Math.min(this.at, slots.length - 1));
  }

  /**
   * @param {string} name
   * @param {number} num
   * @param {string} word
   */
  piece(name, num, word) {
    this.pieces[name].hidden = num <= 0;
    put(this.pieces[name], `${word} · ${whole(num)}`);
  }

  listen() {
    this.row.addEventListener("pointermove", (event) => {
      const index = this.nodes.indexOf(targetOf(event));
      if (index >= 0) this.point(index);
    });
    this.row.addEventListener("pointerleave", () => this.point(-1));
    this.row.addEventListener("blur", () => this.point(-1));
    this.row.addEventListener("keydown", (event) => {
      const last = this.nodes.length - 1;
      /** @type {Record<string, number>} */
      const targets = {
        ArrowRight: this.at < 0 ? last : this.at + 1,
        ArrowLeft: this.at < 0 ? last : this.at - 1,
        Home: 0,
        End: last,
        Escape: -1,
      };
      if (!(event.key in targets)) return;
      event.preventDefault();
      event.stopPropagation();
      this.point(event.key === "Escape" ? -1 : Math.max(0, Math.min(last, targets[event.key])));
    });
  }

  /** @param {number} index */
  point(index) {
    if (this.lit) this.lit.classList.remove("rv-ca-at");
    this.at = index;
    this.lit = this.nodes[index];
    if (this.lit) this.lit.classList.add("rv-ca-at");
    put(this.readout, index >= 0 ? this.slots[index].say : HINT);
  }
}
