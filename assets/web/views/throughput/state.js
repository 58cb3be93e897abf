// The state of the Throughput view, folded from the lines of a run. Pure; no DOM.

import { short } from "../../core/words.js";

export class State {
  /** @type {(Slot | null)[]} */
  slots;
  /** @type {ThroughputPoint[]} */
  points = [];
  /** @type {{ at: number, text: string, move: TauMove }[]} */
  moves = [];
  /** @type {BeginLine | null} */
  begin = null;
  /** @type {MeasuredLine | null} */
  measured = null;
  level = NaN; // tokens per second of plain AR
  tokens = 0; // written since the last begin

  /** @param {ThroughputHead} head */
  constructor({ rows, prompts }) {
    this.prompts = prompts;
    this.slots = new Array(rows).fill(null);
  }

  /**
   * Applies a line of the run.
   * @param {string} tag
   * @param {any} data
   */
  apply(tag, data) {
    if (tag === "begin") this.restart(data);
    else if (tag === "pass") for (const row of data.rows) this.addRow(row);
    else if (tag === "move")
      this.moves.push({ at: data.at, text: moveText(this.moves.at(-1)?.move, data), move: data });
    else if (tag === "figures") this.points.push(data);
    else if (tag === "level") this.level = data.rate;
    else if (tag === "measured") this.measured = data;
    else throw new Error(`A line has the unknown tag ${tag}.`);
  }

  /** @param {BeginLine} begin */
  restart(begin) {
    this.begin = begin;
    this.tokens = 0;
    this.slots.fill(null);
    this.points = [];
    this.moves = [];
  }

  /**
   * Adds what a pass wrote for a prompt. A new prompt takes the first free slot.
   * @param {PassRow} row
   */
  addRow([prompt, count, text, end = ""]) {
    let slot = this.slots.find((candidate) => candidate?.prompt === prompt);
    if (!slot) {
      slot = { prompt, pieces: [], tokens: 0, end: "" };
      this.slots[this.slots.findIndex((candidate) => !candidate || candidate.end)] = slot;
    }
    slot.pieces.push({ text, count });
    slot.tokens += count;
    this.tokens += count;
    slot.end = end;
  }
}

/**
 * Returns what a change of the settings changed, such as "τ 0.9 → 0.5"; "" for the first settings of a run.
 * @param {TauMove | undefined} before
 * @param {TauMove} now
 */
export function moveText(before, now) {
  if (!before) return "";
  /** @type {(name: string, from: string, to: string) => string} */
  const change = (name, from, to) => (from === to ? "" : `${name} ${from} → ${to}`);
  const verified = before.lossless === now.lossless ? "" : now.lossless ? "lossless" : "unverified";
  const texts = [
    change("τ", short(before.tau), short(now.tau)),
    change("B", String(before.block_size), String(now.block_size)),
  ];
  return [...texts, verified].filter(Boolean).join(", ");
}
