// The panel "Cache": the KV cache slots in the displayed pass, the input of each pass, and the memory in use. Draws the
// slots of folds/slots.js. Nodes are updated in place, so that the slot under the pointer stays highlighted after a new
// pass.

import { attribute, group, indexForKey, make, put, shape, targetOf } from "../core/dom.js";
import { lastOf, thinned } from "../core/folds.js";
import { counted, memory, probability, whole } from "../core/words.js";
import { cacheAt, fedBy, isBlockwise, promptTokens, slotsAt } from "../folds/slots.js";

const BEFORE = 14; // number of final slots before the cursor that are drawn one by one
const NUMBERS = [
  ["final", "final"],
  ["again", "fed again as real tokens"],
  ["drafts", "drafts to verify"],
  ["masks", "masks, overwritten by the next pass"],
  ["after", "final after this pass"],
  ["bytes", "keys and values in use"],
  ["room", "room"],
];
const WIDE = new Set(["bytes", "room"]);

export class CachePanel {
  /** @type {string} */
  key;

  static id = "cache";

  static title = "Cache";

  /**
   * @param {HTMLElement} element
   * @param {View} view
   */
  constructor(element, view) {
    this.view = view;
    element.classList.add("rv-cache");
    this.head = make("p", "rv-ca-head rv-num");
    this.strip = new SlotStrip();
    this.list = make("dl", "rv-ca-numbers rv-num");
    /** @type {Record<string, HTMLElement>} */
    this.values = {};
    for (const [key, name] of NUMBERS) {
      this.values[key] = make("dd");
      this.list.append(make("div", WIDE.has(key) ? "rv-ca-wide" : "", make("dt", "", name), this.values[key]));
    }
    this.chart = new FedChart((lane, index) => view.choose(lane, index));
    element.append(this.head, this.strip.element, this.list, this.chart.element);
  }

  draw() {
    const { lane, step: index } = this.view.focus;
    const key = `${this.view.run.id} ${lane.name} ${lane.steps.length} ${index}`;
    if (key === this.key) return;
    this.key = key;
    const isEmpty = index < 0;
    for (const node of [this.strip.element, this.list, this.chart.element]) node.hidden = isEmpty;
    if (isEmpty) return void put(this.head, "The cache appears with the first pass.");
    const state = cacheAt(lane, index);
    put(this.head, headText(lane, index, state));
    this.drawStrip(lane, index, state);
    this.drawNumbers(lane, state);
    this.chart.draw(lane, index);
  }

  /**
   * @param {Lane} lane
   * @param {number} index
   * @param {CacheState} state
   */
  drawStrip(lane, index, state) {
    const slots = slotsAt(lane, index, BEFORE);
    const hidden = { prompt: state.prompt, output: state.output };
    for (const slot of slots) {
      if (slot.state === "prompt") hidden.prompt -= 1;
      if (slot.state === "final") hidden.output -= 1;
    }
    const free = room(lane) - state.used;
    this.strip.draw({
      hidden,
      cursor: state.cursor,
      free: Number.isFinite(free) && free > 0 ? free : 0,
      slots: slots.map((slot) => ({ ...slot, text: slotText(lane, slot), say: slotSay(lane, slot) })),
    });
  }

  /**
   * @param {Lane} lane
   * @param {CacheState} state
   */
  drawNumbers(lane, state) {
    const bytes = (lane.header && lane.header.slot_bytes) || 0;
    /** @type {(key: string, text: string) => void} */
    const set = (key, text) => {
      /** @type {HTMLElement} */ (this.values[key].parentElement).hidden = !text;
      put(this.values[key], text);
    };
    set("final", `${whole(state.cursor)} (prompt ${whole(state.prompt)}, output ${whole(state.output)})`);
    set("again", whole(state.pending));
    set("drafts", state.drafts ? whole(state.drafts) : "");
    set("masks", whole(state.masks));
    set("after", whole(state.after));
    set(
      "bytes",
      bytes
        ? `${memory(state.cursor * bytes)} final, ${memory((state.used - state.cursor) * bytes)} written by this pass`
        : "this trace does not report the size of a slot",
    );
    const parts = [];
    if (bytes && Number.isFinite(room(lane)))
      parts.push(`${memory(room(lane) * bytes)} for ${counted(room(lane), "slot")} at most, ${memory(bytes)} each`);
    if (lane.cacheBytes) parts.push(`${memory(lane.cacheBytes)} reserved`);
    set("room", parts.join(" · "));
  }
}

/**
 * Returns the number of slots that the run can use: its prompt and its token limit.
 * @param {Lane} lane
 */
function room(lane) {
  const limit = lane.settings && lane.settings.max_new_tokens;
  return limit ? promptTokens(lane) + limit : NaN;
}

/**
 * @param {Lane} lane
 * @param {number} index
 * @param {CacheState} state
 */
function headText(lane, index, state) {
  const filled = `Pass ${whole(index + 1)} of ${lane.title} fills ${counted(state.used - state.cursor, "slot")} after the cursor (${whole(state.cursor)}).`;
  if (state.isCommit)
    return `${filled} This pass commits the block: ${state.pending === 1 ? "its token becomes" : `all ${whole(state.pending)} tokens become`} final, and no masks are fed.`;
  if (isBlockwise(lane)) return `${filled} The block is being filled; nothing becomes final before it is committed.`;
  const num = state.after - state.cursor;
  return `${filled} ${counted(num, "token")} ${num === 1 ? "becomes" : "become"} final; the next pass overwrites the rest.`;
}

/** @type {Record<string, string>} */
const STATES = {
  prompt: "prompt, final",
  final: "output, final",
  pending: "fed again as a real token",
  draft: "draft, verified by this pass",
  mask: "mask, overwritten by the next pass",
};

/**
 * @param {Lane} lane
 * @param {Slot} given
 */
function slotText(lane, { state, id }) {
  if (state === "mask") return "mask";
  return id !== null && lane.vocabulary.has(id) ? lane.tokenName(id) : state === "prompt" ? "·" : "prompt";
}

/**
 * @param {Lane} lane
 * @param {Slot} slot
 */
function slotSay(lane, slot) {
  const name = slot.id !== null && lane.vocabulary.has(slot.id) ? ` “${lane.tokenName(slot.id)}”` : "";
  const after = slot.state === "mask" && slot.group ? ` after draft ${slot.group}` : "";
  const parts = [`Slot ${whole(slot.slot)}${name}: ${STATES[slot.state].replace("mask", `mask${after}`)}`];
  if (slot.proposal)
    parts.push(
      `predicts “${lane.tokenName(slot.proposal[0])}” at ${probability(slot.proposal[1])}, ${slot.isTaken ? "accepted" : "not accepted"}`,
    );
  return `${parts.join("; ")}.`;
}

const COLUMNS = 60; // maximum number of visible passes
const POINTS = 200; // maximum number of points in the cursor's line
/** @type {("pending" | "drafts" | "masks")[]} */
const PARTS = ["masks", "drafts", "pending"]; // from top to bottom

/** @param {Fed} given */
const fedText = ({ index, pending, drafts, masks }) =>
  `pass ${index + 1}: ${pending} fed again${drafts ? `, ${counted(drafts, "draft")}` : ""}, ${counted(masks, "mask")}`;

// Two small charts of a lane: the input of each pass as stacked columns, and the cursor's position before each pass.
class FedChart {
  /** @type {HTMLElement[]} */
  nodes = [];
  /** @type {number} */
  index;
  /** @type {Lane} */
  lane;
  /** @type {number} */
  from;

  /** @param {(lane: Lane, index: number) => void} choose */
  constructor(choose) {
    this.choose = choose;
    this.title = make("h4");
    const slider = { tabindex: 0, role: "slider", "aria-label": "Pass shown in the cache" };
    this.columns = make("div", { class: "rv-fc-columns", ...slider });
    this.ends = [make("span"), make("span")];
    this.path = shape("path");
    this.mark = shape("line", { y1: 0, y2: 100 });
    const drawing = { class: "rv-fc-line", viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img" };
    this.line = shape("svg", drawing, this.path, this.mark);
    this.lineEnds = [make("span"), make("span")];
    const lineTitle = make("h4", "", "Cursor: number of final slots");
    this.element = make(
      "div",
      "rv-fc",
      make("div", "", this.title, this.columns, make("p", "rv-fc-scale rv-num", ...this.ends)),
      make("div", "", lineTitle, this.line, make("p", "rv-fc-scale rv-num", ...this.lineEnds)),
    );
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
    const most = shown.reduce((highest, { used, cursor }) => Math.max(highest, used - cursor), 1);
    while (this.nodes.length > shown.length) this.nodes.pop()?.remove();
    while (this.nodes.length < shown.length) this.add();
    shown.forEach((pass, i) => this.drawColumn(this.nodes[i], pass, most));
    this.element.style.setProperty("--columns", String(shown.length));
    put(
      this.title,
      `Slots filled per pass, at most ${whole(most)}${shown.some(({ isCommit }) => isCommit) ? "; a bar on top marks a commit" : ""}`,
    );
    put(this.ends[0], `pass ${whole(this.from + 1)}`);
    put(this.ends[1], whole(this.from + shown.length));
    this.setValue(shown[index - this.from], last);
    this.drawLine(lane, index);
  }

  /**
   * @param {Fed} at
   * @param {number} last
   */
  setValue(at, last) {
    attribute(this.columns, {
      "aria-valuemin": 1,
      "aria-valuemax": last,
      "aria-valuenow": this.index + 1,
      "aria-valuetext": `${fedText(at)}${at.isCommit ? ", commits the block" : ""}`,
    });
  }

  add() {
    const node = make("div", "rv-fc-column", ...PARTS.map((name) => make("i", `rv-fc-${name}`)));
    this.columns.append(node);
    this.nodes.push(node);
  }

  /**
   * @param {HTMLElement} node
   * @param {Fed} pass
   * @param {number} most
   */
  drawColumn(node, pass, most) {
    PARTS.forEach((name, i) => {
      /** @type {HTMLElement} */ (node.children[i]).style.height = `${(100 * pass[name]) / most}%`;
    });
    node.classList.toggle("rv-fc-at", pass.index === this.index);
    node.classList.toggle("rv-fc-commit", pass.isCommit);
    const title = `${fedText(pass)}${pass.isCommit ? ", commit" : ""}`;
    if (node.title !== title) node.title = title;
  }

  /**
   * Draws a line chart of the cursor's position by pass. For long runs, the line has points at only some of the passes.
   * @param {Lane} lane
   * @param {number} index
   */
  drawLine(lane, index) {
    const { steps } = lane;
    const most = Math.max(1, lastOf(steps).cursor + lastOf(steps).fed);
    /** @param {number} i */
    const x = (i) => (100 * (i + 0.5)) / steps.length;
    const points = thinned(steps, POINTS).map(
      (step) => `${x(step.index).toFixed(2)},${(100 - (100 * step.cursor) / most).toFixed(2)}`,
    );
    /** @param {string} point */
    const level = (point) => point.split(",")[1];
    this.path.setAttribute(
      "d",
      `M0,100 L0,${level(points[0])} ${points.map((point) => `L${point}`).join(" ")} L100,${level(lastOf(points))} L100,100 Z`,
    );
    attribute(this.mark, { x1: x(index).toFixed(2), x2: x(index).toFixed(2) });
    put(this.lineEnds[0], `pass 1: ${whole(steps[0].cursor)}`);
    put(this.lineEnds[1], `${whole(steps.length)}: ${whole(lastOf(steps).cursor)}`);
    this.line.setAttribute(
      "aria-label",
      `The cursor went from ${steps[0].cursor} to ${lastOf(steps).cursor} in ${counted(steps.length, "pass", "passes")}.`,
    );
  }

  listen() {
    this.columns.addEventListener("click", (event) => {
      const node = /** @type {HTMLElement | null} */ (targetOf(event).closest(".rv-fc-column"));
      if (node) this.goTo(this.from + this.nodes.indexOf(node));
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
      this.goTo(Math.max(0, Math.min(this.lane.steps.length - 1, this.index + move)));
    });
  }

  /**
   * Chooses a pass. The index is set immediately, so that another key press before the next frame continues from it.
   * @param {number} index
   */
  goTo(index) {
    this.index = index;
    this.choose(this.lane, index);
  }
}

const HINT = "Point at a slot, or use the arrow keys.";
const LEGEND = [
  ["final", "final keys and values"],
  ["pending", "fed again as a real token"],
  ["draft", "draft to verify"],
  ["mask", "mask, overwritten"],
];

// The KV cache as a strip. Slots far before the cursor are drawn as two pieces (prompt and output), later slots one by
// one, with the cursor among them. The strip is a single tab stop; arrow keys move between slots and show their
// descriptions. Colour, outline and text show a slot's state.
class SlotStrip {
  /** @type {HTMLElement[]} */
  nodes = [];
  /** @type {(Slot & { text: string, say: string })[]} */
  slots;
  /** @type {HTMLElement | undefined} */
  lit;

  constructor() {
    this.row = group("rv-ca-slots", "Slots of the cache. Left and right arrows move between them.");
    this.cursor = make("span", "rv-ca-cursor rv-num");
    /** @type {Record<string, HTMLElement>} */
    this.pieces = {
      prompt: make("span", "rv-ca-piece rv-num"),
      output: make("span", "rv-ca-piece rv-num"),
      free: make("span", "rv-ca-piece rv-ca-free rv-num"),
    };
    this.readout = make("p", { class: "rv-ca-say rv-num", "aria-live": "polite" }, HINT);
    const legend = LEGEND.map(([state, text]) =>
      make("span", "", make("i", { class: "rv-ca-slot", "data-state": state }), text),
    );
    this.element = make("div", "rv-ca-strip", this.row, this.readout, make("p", "rv-ca-legend", ...legend));
    this.at = -1;
    this.listen();
  }

  /**
   * Draws the strip. hidden: number of slots in the pieces for prompt and output. slots: the single slots, with text
   * and description. free: number of unused slots.
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
      const [right, left] = this.at < 0 ? [last, last] : [this.at + 1, this.at - 1];
      const target = indexForKey(event, { ArrowRight: right, ArrowLeft: left, Home: 0, End: last, Escape: -1 }, last);
      if (target === null) return;
      event.stopPropagation();
      this.point(event.key === "Escape" ? -1 : target);
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
