// The panel "Cache": the slots of the shown forward, what each forward fed, and bytes.
// Draws folds/slots.js; nodes are kept and updated, so that pointing survives a new forward.

import { counted, memory, probability, whole } from "../../core/words.js";
import { make, put } from "../../core/dom.js";
import { cacheAt, isBlockwise, promptTokens, slotsAt } from "../folds/slots.js";
import { FedChart } from "./fed_chart.js";
import { SlotStrip } from "./slot_strip.js";

const BEFORE = 14; // final slots drawn one by one ahead of the cursor
const NUMBERS = [
  ["final", "final"],
  ["again", "fed again as real tokens"],
  ["drafts", "drafts, for AR to judge"],
  ["masks", "masks, overwritten next time"],
  ["after", "final after this forward"],
  ["bytes", "keys and values in use"],
  ["room", "room"],
];
const WIDE = new Set(["bytes", "room"]);

export class CachePanel {
  /** @type {Record<string, { row: HTMLElement, value: HTMLElement, name: HTMLElement }>} */
  values;
  /** @type {string} */
  key;
  /** @type {View} */
  view;

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
    this.values = {};
    for (const [key, name] of NUMBERS) {
      const row = make("div", WIDE.has(key) ? "rv-ca-wide" : "");
      this.values[key] = { row, value: make("dd"), name: make("dt", "", name) };
      row.append(this.values[key].name, this.values[key].value);
      this.list.append(row);
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
    if (isEmpty) return void put(this.head, "The cache is drawn from the first forward on.");
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
    /**
     * @param {string} key
     * @param {string} text
     */
    const set = (key, text) => {
      this.values[key].row.hidden = !text;
      put(this.values[key].value, text);
    };
    set("final", `${whole(state.cursor)} (prompt ${whole(state.prompt)}, output ${whole(state.output)})`);
    set("again", whole(state.pending));
    set("drafts", state.drafts ? whole(state.drafts) : "");
    set("masks", whole(state.masks));
    set("after", whole(state.after));
    set(
      "bytes",
      bytes
        ? `${memory(state.cursor * bytes)} final, ${memory((state.used - state.cursor) * bytes)} written by this forward`
        : "this trace does not tell what a slot takes",
    );
    const parts = [];
    if (bytes && Number.isFinite(room(lane)))
      parts.push(`${memory(room(lane) * bytes)} for ${counted(room(lane), "slot")} at most, ${memory(bytes)} each`);
    if (lane.cacheBytes) parts.push(`${memory(lane.cacheBytes)} reserved`);
    set("room", parts.join(" · "));
  }
}

/**
 * Slots that the run may come to use: its prompt and all tokens that it may write.
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
  const what = `Forward ${whole(index + 1)} of ${lane.title} feeds ${counted(state.used - state.cursor, "slot")} behind the cursor at ${whole(state.cursor)}.`;
  if (state.isCommit)
    return `${what} It commits the block: ${state.pending === 1 ? "its token becomes" : `all ${whole(state.pending)} tokens become`} final, and it carries no masks.`;
  if (isBlockwise(lane)) return `${what} The block is being filled: nothing becomes final before its commit.`;
  const num = state.after - state.cursor;
  return `${what} ${counted(num, "token")} ${num === 1 ? "becomes" : "become"} final; the next forward starts there and overwrites what lies behind.`;
}

/** @type {Record<string, string>} */
const STATES = {
  prompt: "prompt, final",
  final: "output, final",
  pending: "fed again as a real token",
  draft: "draft, fed again for AR to judge",
  mask: "mask, overwritten by the next forward",
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
      `predicts “${lane.tokenName(slot.proposal[0])}” at ${probability(slot.proposal[1])}, ${slot.isTaken ? "taken" : "not taken"}`,
    );
  return `${parts.join("; ")}.`;
}
