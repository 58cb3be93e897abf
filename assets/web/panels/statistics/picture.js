// A small picture of bars: one tab stop, arrow keys read the values, a table says the same to screen readers.
// Draws items, updates them in place; knows nothing of what they mean.

import { make, put, targetOf } from "../../core/dom.js";

const CROWDED = 16; // bars that have room for a label each

export class Picture {
  /** @type {BarItem[]} */
  items;
  /** @type {Bar[]} */
  bars;
  rest = ""; // what is said while no bar is pointed at

  /**
   * names: {key, title, label, value} where label and value head the table; isAcross: bars lie on their side.
   * @param {{ key: string, title: string, label: string, value: string, isAcross?: boolean }} given
   */
  constructor({ key, title, label, value, isAcross }) {
    this.element = make("figure", "rv-pic");
    this.element.dataset.picture = key;
    this.plot = make("div", isAcross ? "rv-pic-bars rv-pic-across" : "rv-pic-bars");
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "group");
    this.plot.setAttribute("aria-label", `${title}. Left and right arrows read the values.`);
    this.none = make("p", "rv-pic-none");
    this.readout = make("p", "rv-pic-say rv-num");
    this.readout.setAttribute("aria-live", "polite");
    const table = make("table");
    this.body = make("tbody");
    const head = make("tr");
    head.append(make("th", "", label), make("th", "", value));
    const top = make("thead");
    top.append(head);
    table.append(make("caption", "", title), top, this.body);
    const hidden = make("div", "rv-hidden");
    hidden.append(table);
    this.element.append(make("figcaption", "", title), this.plot, this.none, this.readout, hidden);
    this.items = [];
    this.bars = [];
    this.at = -1;
    this.listen();
  }

  /**
   * items: {label, share (0..1 of the room, NaN for none), top, sub, n (of the ramp, else 0), mark (0..1 or null), say, value, isVoid}
   * @param {BarItem[]} items
   * @param {string} rest
   */
  draw(items, rest) {
    this.items = items;
    this.rest = rest;
    put(this.none, "");
    this.plot.hidden = false;
    while (this.bars.length > items.length) this.drop();
    while (this.bars.length < items.length) this.add();
    const every = Math.ceil(items.length / CROWDED);
    items.forEach((item, i) => this.drawBar(this.bars[i], item, i % every === 0));
    this.point(Math.min(this.at, items.length - 1));
  }

  /**
   * One sentence in the place of the bars.
   * @param {string} sentence
   */
  say(sentence) {
    this.at = -1;
    this.items = [];
    while (this.bars.length) this.drop();
    this.plot.hidden = true;
    put(this.none, sentence);
    put(this.readout, "");
  }

  add() {
    /** @type {Bar} */
    const bar = {
      node: make("div", "rv-pic-bar"),
      top: make("span", "rv-pic-top rv-num"),
      room: make("span", "rv-pic-room"),
      fill: make("i"),
      mark: make("b"),
      label: make("span", "rv-pic-label rv-num"),
      sub: make("span", "rv-pic-sub rv-num"),
      row: make("tr"),
      cells: [make("th"), make("td")],
    };
    bar.room.append(bar.fill, bar.mark, bar.top);
    bar.node.append(bar.room, bar.label, bar.sub);
    bar.cells[0].scope = "row";
    bar.row.append(...bar.cells);
    this.plot.append(bar.node);
    this.body.append(bar.row);
    this.bars.push(bar);
  }

  drop() {
    const bar = this.bars.pop();
    bar?.node.remove();
    bar?.row.remove();
  }

  /**
   * @param {Bar} bar
   * @param {BarItem} item
   * @param {boolean} isLabelled
   */
  drawBar(bar, item, isLabelled) {
    const share = Number.isFinite(item.share) ? Math.max(0, Math.min(1, item.share)) : 0;
    bar.node.style.setProperty("--share", share.toFixed(4));
    bar.node.dataset.n = String(item.n || 0);
    bar.node.classList.toggle("rv-pic-void", Boolean(item.isVoid));
    const mark = Number.isFinite(item.mark) ? item.mark : null;
    bar.mark.hidden = typeof mark !== "number";
    bar.node.style.setProperty("--mark", mark?.toFixed(4) ?? "0");
    put(bar.top, isLabelled ? item.top : "");
    put(bar.label, isLabelled ? item.label : "");
    put(bar.sub, item.sub || "");
    put(bar.cells[0], item.label);
    put(bar.cells[1], item.value);
  }

  listen() {
    this.plot.addEventListener("pointermove", (event) => {
      const node = targetOf(event).closest(".rv-pic-bar");
      if (node) this.point(this.bars.findIndex((bar) => bar.node === node));
    });
    this.plot.addEventListener("pointerleave", () => this.point(-1));
    this.plot.addEventListener("blur", () => this.point(-1));
    this.plot.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const last = this.items.length - 1;
    /** @type {Record<string, number>} */
    const targets = {
      ArrowRight: this.at + 1,
      ArrowDown: this.at + 1,
      ArrowLeft: this.at - 1,
      ArrowUp: this.at - 1,
      Home: 0,
      End: last,
      Escape: -1,
    };
    if (!(event.key in targets) || last < 0) return;
    event.preventDefault();
    event.stopPropagation();
    this.point(event.key === "Escape" ? -1 : Math.max(0, Math.min(last, targets[event.key])));
  }

  /** @param {number} index */
  point(index) {
    if (this.at !== index) {
      if (this.bars[this.at]) this.bars[this.at].node.classList.remove("rv-pic-at");
      if (this.bars[index]) this.bars[index].node.classList.add("rv-pic-at");
    }
    this.at = index;
    put(this.readout, index >= 0 ? this.items[index].say : this.rest);
  }
}
