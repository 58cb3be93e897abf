// What each forward fed, as stacked columns, and the cursor over the whole run: two thin charts of one lane.
// Columns are kept and updated; choosing one is told to `choose`.

import { make, put, shape, targetOf } from "../../core/dom.js";
import { lastOf } from "../../core/folds.js";
import { counted, whole } from "../../core/words.js";
import { fedBy } from "../folds/slots.js";

const COLUMNS = 60; // forwards in sight, the shown one among them
const POINTS = 200; // of the line of the cursor
/** @type {("pending" | "drafts" | "masks")[]} */
const PARTS = ["pending", "drafts", "masks"];

export class FedChart {
  /** @type {HTMLElement[]} */
  nodes;
  /** @type {number} */
  index;
  /** @type {Lane} */
  lane;
  /** @type {number} */
  from;

  /** @param {(lane: Lane, index: number) => void} choose */
  constructor(choose) {
    this.choose = choose;
    this.element = make("div", "rv-fc");
    this.title = make("h4");
    this.columns = make("div", "rv-fc-columns");
    this.columns.tabIndex = 0;
    this.columns.setAttribute("role", "slider");
    this.columns.setAttribute("aria-label", "Forward shown in the cache");
    this.scale = make("p", "rv-fc-scale rv-num");
    this.ends = [make("span"), make("span")];
    this.scale.append(...this.ends);
    this.lineTitle = make("h4", "", "Cursor: slots that are final");
    this.line = shape("svg");
    this.line.setAttribute("class", "rv-fc-line");
    this.line.setAttribute("viewBox", "0 0 100 100");
    this.line.setAttribute("preserveAspectRatio", "none");
    this.line.setAttribute("role", "img");
    this.path = shape("path");
    this.mark = shape("line");
    this.mark.setAttribute("y1", "0");
    this.mark.setAttribute("y2", "100");
    this.line.append(this.path, this.mark);
    const first = make("div");
    first.append(this.title, this.columns, this.scale);
    const second = make("div");
    this.lineScale = make("p", "rv-fc-scale rv-num");
    this.lineEnds = [make("span"), make("span")];
    this.lineScale.append(...this.lineEnds);
    second.append(this.lineTitle, this.line, this.lineScale);
    this.element.append(first, second);
    this.nodes = [];
    this.listen();
  }

  /**
   * @param {Lane} lane
   * @param {number} index
   */
  draw(lane, index) {
    this.lane = lane;
    this.index = index;
    const last = lane.steps.length;
    this.from = Math.max(0, Math.min(index - COLUMNS / 2, last - COLUMNS));
    const shown = fedBy(lane, this.from, this.from + COLUMNS);
    const most = shown.reduce((sum, each) => Math.max(sum, each.used - each.cursor), 1);
    while (this.nodes.length > shown.length) this.nodes.pop()?.remove();
    while (this.nodes.length < shown.length) this.add();
    shown.forEach((each, i) => this.drawColumn(this.nodes[i], each, most));
    this.element.style.setProperty("--columns", String(shown.length));
    put(
      this.title,
      `Slots fed by each forward, ${whole(most)} at most${shown.some((each) => each.isCommit) ? "; a bar on top marks a commit" : ""}`,
    );
    put(this.ends[0], `forward ${whole(this.from + 1)}`);
    put(this.ends[1], whole(this.from + shown.length));
    this.setValue(shown[index - this.from], last);
    this.drawLine(lane, index);
  }

  /**
   * @param {Fed} at
   * @param {number} last
   */
  setValue(at, last) {
    for (const [name, value] of [
      ["min", 1],
      ["max", last],
      ["now", this.index + 1],
    ])
      this.columns.setAttribute(`aria-value${name}`, String(value));
    const drafts = at.drafts ? `, ${counted(at.drafts, "draft")}` : "";
    this.columns.setAttribute(
      "aria-valuetext",
      `forward ${this.index + 1}: ${at.pending} fed again${drafts}, ${counted(at.masks, "mask")}${at.isCommit ? ", commits the block" : ""}`,
    );
  }

  add() {
    const node = make("div", "rv-fc-column");
    node.append(...[...PARTS].reverse().map((name) => make("i", `rv-fc-${name}`)));
    this.columns.append(node);
    this.nodes.push(node);
  }

  /**
   * @param {HTMLElement} node
   * @param {Fed} each
   * @param {number} most
   */
  drawColumn(node, each, most) {
    [...PARTS].reverse().forEach((name, i) => {
      /** @type {HTMLElement} */ (node.children[i]).style.height = `${(100 * each[name]) / most}%`;
    });
    node.classList.toggle("rv-fc-at", each.index === this.index);
    node.classList.toggle("rv-fc-commit", each.isCommit);
    const title = `forward ${each.index + 1}: ${each.pending} fed again${each.drafts ? `, ${counted(each.drafts, "draft")}` : ""}, ${counted(each.masks, "mask")}${each.isCommit ? ", commit" : ""}`;
    if (node.title !== title) node.title = title;
  }

  /**
   * The cursor of every forward, thinned out for long runs.
   * @param {Lane} lane
   * @param {number} index
   */
  drawLine(lane, index) {
    const { steps } = lane;
    const stride = Math.max(1, Math.ceil(steps.length / POINTS));
    const most = Math.max(1, lastOf(steps).cursor + lastOf(steps).fed);
    /** @param {number} i */
    const x = (i) => (100 * (i + 0.5)) / steps.length;
    const points = steps
      .filter((_, i) => i % stride === 0 || i === steps.length - 1)
      .map((step) => `${x(step.index).toFixed(2)},${(100 - (100 * step.cursor) / most).toFixed(2)}`);
    /** @param {string} point */
    const level = (point) => point.split(",")[1];
    this.path.setAttribute(
      "d",
      `M0,100 L0,${level(points[0])} ${points.map((point) => `L${point}`).join(" ")} L100,${level(lastOf(points))} L100,100 Z`,
    );
    for (const name of ["x1", "x2"]) this.mark.setAttribute(name, x(index).toFixed(2));
    put(this.lineEnds[0], `forward 1: ${whole(steps[0].cursor)}`);
    put(this.lineEnds[1], `${whole(steps.length)}: ${whole(lastOf(steps).cursor)}`);
    this.line.setAttribute(
      "aria-label",
      `The cursor went from ${steps[0].cursor} to ${lastOf(steps).cursor} in ${counted(steps.length, "forward")}.`,
    );
  }

  listen() {
    this.columns.addEventListener("click", (event) => {
      const node = /** @type {HTMLElement | null} */ (targetOf(event).closest(".rv-fc-column"));
      if (node) this.choose(this.lane, this.from + this.nodes.indexOf(node));
    });
    this.columns.addEventListener("keydown", (event) => {
      /** @type {Record<string, number>} */
      const moves = {
        ArrowLeft: -1,
        ArrowDown: -1,
        ArrowRight: 1,
        ArrowUp: 1,
        PageDown: -10,
        PageUp: 10,
        Home: -Infinity,
        End: Infinity,
      };
      const move = moves[event.key];
      if (!move || !this.lane) return;
      event.preventDefault();
      event.stopPropagation();
      this.choose(this.lane, Math.max(0, Math.min(this.lane.steps.length - 1, this.index + move)));
    });
  }
}
