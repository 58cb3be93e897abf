// One cell a forward: above what it took, below what it would take. One tab stop, arrow keys inside; cells are
// changed in place, so that dragging a threshold over thousands of forwards stays smooth.

import { make } from "../common/dom.js";

const AT_ONCE = 1500; // new cells a frame

const ramp = (cell, num) => Math.min(5, cell.isLossless ? num + 1 : num);

export class WhatIfStrip {
  // point(index): a forward is looked at, -1 for none; choose(index): it is chosen.
  constructor({ point, choose }) {
    this.report = { point, choose };
    this.element = make("div", "rv-wi-strip");
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", "Forwards, a cell each. Left and right arrows read them, Enter chooses one.");
    this.nodes = [];
    this.drawn = []; // what each node shows
    this.first = -1;
    this.at = -1;
    this.chosen = -1;
    this.listen();
  }

  clear() {
    this.element.replaceChildren();
    this.nodes = [];
    this.drawn = [];
    this.first = -1;
    this.at = -1;
    this.chosen = -1;
    this.element.scrollTop = 0;
  }

  // Returns whether some cells are left for the next frame.
  draw(cells, first, chosen) {
    const known = this.nodes.length;
    const until = Math.min(cells.length, known + AT_ONCE);
    const fresh = document.createDocumentFragment();
    for (let i = 0; i < until; i += 1) {
      if (i >= known) {
        this.nodes.push(make("span", "rv-wi-cell"));
        fresh.append(this.nodes[i]);
      }
      this.cell(i, cells[i]);
    }
    this.element.append(fresh);
    this.first = this.move(this.first, first, "rv-wi-first");
    this.chosen = this.move(this.chosen, chosen, "rv-wi-chosen");
    return until < cells.length;
  }

  cell(i, cell) {
    const state = `${cell.then} ${cell.now}`;
    if (this.drawn[i] === state) return;
    this.drawn[i] = state;
    const node = this.nodes[i];
    const differs = cell.then !== cell.now;
    node.className = `rv-wi-cell rv-wi-a${ramp(cell, cell.then)} rv-wi-b${ramp(cell, cell.now)}${differs ? " rv-wi-differs" : ""}`;
    if (i === this.first) node.classList.add("rv-wi-first");
    if (i === this.chosen) node.classList.add("rv-wi-chosen");
    if (i === this.at) node.classList.add("rv-wi-at");
    node.textContent = String(cell.then);
    node.dataset.now = differs ? String(cell.now) : "";
  }

  move(from, to, name) {
    if (from === to) return from;
    if (this.nodes[from]) this.nodes[from].classList.remove(name);
    if (!this.nodes[to]) return -1;
    this.nodes[to].classList.add(name);
    return to;
  }

  listen() {
    const { element } = this;
    const indexOf = (event) => this.nodes.indexOf(event.target.closest(".rv-wi-cell"));
    element.addEventListener("pointerover", (event) => this.point(indexOf(event)));
    element.addEventListener("pointerleave", () => this.point(-1));
    element.addEventListener("blur", () => this.point(-1));
    element.addEventListener("click", (event) => {
      const index = indexOf(event);
      if (index >= 0) this.report.choose(index);
    });
    element.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const last = this.nodes.length - 1;
    if (last < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const from = this.at >= 0 ? this.at : this.chosen;
    const targets = { ArrowRight: from + 1, ArrowDown: from + 1, ArrowLeft: from - 1, ArrowUp: from - 1, Home: 0, End: last, Enter: from };
    if (!(event.key in targets)) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") {
      if (from >= 0) this.report.choose(from);
      return;
    }
    this.point(Math.max(0, Math.min(last, targets[event.key])));
    this.reveal(this.nodes[this.at]);
  }

  point(index) {
    if (index === this.at) return;
    this.at = this.move(this.at, index, "rv-wi-at");
    this.report.point(this.at);
  }

  // Brings a cell into sight, without moving the page.
  reveal(node) {
    const { element } = this;
    const top = node.offsetTop - element.offsetTop;
    if (top < element.scrollTop || top + node.offsetHeight > element.scrollTop + element.clientHeight) {
      element.scrollTop = top - element.clientHeight / 2;
    }
  }
}
