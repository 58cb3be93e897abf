// Builds the rows of a batch from its trace lines: for each row, the result of each pass, its KV cache and its text. No
// DOM and no timers.

import { bytesOf, shown } from "../../core/bytes.js";
import { FINAL } from "../../core/folds.js";
import { UNKNOWN, ofRounds, speedClause } from "../../core/speedup.js";
import { capitalised, counted, figure, passesAgainst, short, whole } from "../../core/words.js";

export class Row {
  /** @type {RowCell[]} */
  cells = [];
  /** @type {boolean | null} */
  verdict = null;

  /**
   * @param {number} number
   * @param {string} prompt
   */
  constructor(number, prompt) {
    this.number = number;
    this.prompt = shown(prompt);
    this.tokens = 0;
    /** @type {number[]} */
    this.ids = []; // ids of the row's tokens
    this.idle = 0;
    this.end = "";
    this.decoder = new TextDecoder("utf-8");
  }

  // The number of prompt tokens, which are the input of the row's first prediction.
  get promptTokens() {
    const [first] = this.cells;
    return first ? first.committed + first.filling : 0;
  }

  /** @param {number} forward */
  cellAt(forward) {
    return this.cells.length ? this.cells[forward - this.cells[0].forward] : undefined;
  }
}

export class Side {
  /** @type {number[]} */
  seconds = []; // duration of each pass
  /** @type {HeaderEvent | null} */
  header = null;
  /** @type {BatchTotals | null} */
  totals = null;
  /** @type {RoundsLine | null} */
  rounds = null;
  /** @type {EndEvent | null} */
  end = null;
  /** @type {Map<number, Uint8Array>} */
  vocabulary = new Map();

  /**
   * @param {SideHead} given
   * @param {string[]} prompts
   */
  constructor({ side, method, title }, prompts) {
    this.name = side;
    this.method = method;
    this.title = title;
    this.forwards = 0;
    this.rows = prompts.map((prompt, number) => new Row(number, prompt));
  }

  /** @param {TraceEvent} event */
  push(event) {
    if (event.type === "header") this.header = event;
    else if (event.type === "step") this.readStep(event);
    else if (event.type === "end") this.end = event;
    else if (event.type !== "prefill")
      throw new Error(`A trace line has the unknown type ${String(/** @type {{ type: unknown }} */ (event).type)}.`);
  }

  /** @param {StepEvent} event */
  readStep(event) {
    for (const [id, text] of Object.entries(event.vocabulary || {})) this.vocabulary.set(Number(id), bytesOf(text));
    const forward = this.forwards;
    this.forwards += 1;
    this.seconds.push(event.seconds);
    for (const row of event.rows) this.readRow(this.rows[row.row], row, forward, Boolean(event.commit));
    for (const [number, wait, committed, filling, fed] of event.idle || []) {
      const row = this.rows[number];
      row.idle += 1;
      const cache = { committed, filling, scratch: fed - filling };
      row.cells.push({ ...cache, forward, count: 0, wait, isCommit: Boolean(event.commit), text: "", end: "" });
    }
  }

  /**
   * @param {Row} row
   * @param {RowStep} data
   * @param {number} forward
   * @param {boolean} isCommit
   */
  readRow(row, data, forward, isCommit) {
    const isOver = FINAL.has(data.stop);
    const ids = data.stop === "eos" ? data.accepted.slice(0, -1) : data.accepted;
    let text = ids.map((id) => row.decoder.decode(this.vocabulary.get(id) || bytesOf(""), { stream: true })).join("");
    if (isOver) text += row.decoder.decode();
    row.tokens += data.accepted.length;
    row.ids.push(...data.accepted);
    row.end = isOver ? data.stop : "";
    const cache = { committed: data.cursor, filling: data.num_pending, scratch: data.num_fed - data.num_pending };
    const { end } = row;
    row.cells.push({ ...cache, forward, count: data.accepted.length, wait: "", isCommit, text: shown(text), end });
  }
}

/**
 * Compares a row's text with AR's for the same prompt. text: the result in words, "" until a difference is found or
 * both texts have ended.
 * @param {Pick<Row, "ids" | "end">} row
 * @param {Pick<Row, "ids" | "end">} ar
 * @returns {{ text: string, differs: boolean }}
 */
export function besideAr(row, ar) {
  const index = row.ids.findIndex((id, i) => i < ar.ids.length && id !== ar.ids[i]);
  if (index >= 0) return { text: `differs from AR at token ${index + 1}`, differs: true };
  const isWhole = Boolean(row.end && ar.end) && row.ids.length === ar.ids.length;
  return { text: isWhole ? SAME : "", differs: false };
}

const STEADY = 2; // ratio of the fastest to the slowest round above which no speed is reported

/** @param {RoundsLine | null} rounds */
const spreadOf = (rounds) => (rounds?.low && rounds.high ? rounds.high / rounds.low : 1);

/** @param {RoundsLine | null} rounds */
const isUnsteady = (rounds) => spreadOf(rounds) > STEADY;

/**
 * Returns the speed comparison over the rounds. If the rounds differ too much, the machine was busy and no ratio is
 * returned.
 * @param {RoundsLine} rounds
 * @returns {Speedup}
 */
export const steady = (rounds) => (isUnsteady(rounds) ? { ...UNKNOWN, kind: "busy" } : ofRounds(rounds));

/**
 * Returns the end of the result's sentence: ", 1.4 times as fast", or why no speed is reported; "" before a round has
 * ended.
 * @param {RoundsLine | null} rounds
 */
function speedText(rounds) {
  if (isUnsteady(rounds))
    return `; speed is not reported, because it varied by a factor of ${short(spreadOf(rounds), 1)} between rounds`;
  return rounds ? speedClause(ofRounds(rounds)) : "";
}

/**
 * Returns the result of a batch in one sentence, in passes and in time; "" before both methods have ended.
 * @param {Side[]} sides
 */
export function batchFinding(sides) {
  const [first, second] = sides;
  if (!sides.length || !sides.every(({ end, totals }) => end && totals)) return "";
  const { counted_forwards: passes, effective_tpf: tpf } = /** @type {BatchTotals} */ (first.totals);
  if (!second) return `${first.title}: ${figure(tpf)} tokens per row and forward pass.`;
  const { counted_forwards: baseline, effective_tpf: other } = /** @type {BatchTotals} */ (second.totals);
  const isSame = first.rows.every(({ ids }, i) => String(ids) === String(second.rows[i].ids));
  if (!isSame)
    return `${first.title}: ${figure(tpf)} tokens per row and forward pass instead of ${figure(other)} with ${second.title}${speedText(first.rounds)}. The texts differ.`;
  const counts = `${passesAgainst(passes, baseline, second.title)} (${whole(passes)} instead of ${whole(baseline)})`;
  return `${capitalised(first.title)}: the same texts ${counts}${speedText(first.rounds)}.`;
}

export const SAME = "identical to AR";

/** @type {Record<string, string>} */
const ENDS = {
  eos: "the text ended here",
  limit: "the limit was reached here",
  repeats: "the text began to repeat itself and was stopped here",
};

/** @type {Record<string, string>} */
const WAITS = {
  block: "its block is full and waits for the other rows",
  finished: "it has ended and waits for the other rows",
};

/**
 * @param {Side} side
 * @param {Row} row
 * @param {RowCell} cell
 */
export function cellText(side, row, cell) {
  const result = cell.wait ? `idle: ${WAITS[cell.wait]}` : counted(cell.count, "token");
  const commit = cell.isCommit ? ", the pass that stores the full block" : "";
  const parts = [`Row ${row.number + 1}, pass ${cell.forward + 1}: ${result}${commit}`, cacheText(side, cell)];
  if (cell.end) parts.push(ENDS[cell.end]);
  return parts.filter(Boolean).join(" · ");
}

/**
 * Describes a row's KV cache during a pass, with the words of the legend.
 * @param {Side} side
 * @param {RowCell} cell
 */
export function cacheText(side, { committed, filling, scratch }) {
  if (side.method === "uncached") return `no cache: ${counted(filling + scratch, "position")} recomputed`;
  const added = side.method === "block" ? "in block" : "added";
  return `${committed} stored · ${filling} ${added} · ${scratch} temporary`;
}
