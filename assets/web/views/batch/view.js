// The batch view: sends the received lines to its parts (sides, lanes, totals, charts), and draws at most once per
// frame.

import { find, group, make, put, targetOf } from "../../core/dom.js";
import { lastOf } from "../../core/folds.js";
import { PhaseView, mountOf } from "../../core/line_view.js";
import { counted, verdictText, whole } from "../../core/words.js";
import { Side, batchFinding, besideAr, cacheText, cellText } from "./side.js";
import { BatchPlots, Totals, buildLegend } from "./totals.js";

const SCALE_STEP = 16; // passes by which the scale of the strips grows, so that it does not change with every pass
const BUDGET = 8; // milliseconds per frame for drawing lanes; a recorded result arrives all at once

class BatchView extends PhaseView {
  static what = "This batch";
  static empty =
    "Press Run to decode all prompts as one batch with each method in turn, in several rounds. Each prompt gets a lane that shows how many tokens every forward pass wrote, and where the row idled. Plain AR writes one token per pass.";

  /** @type {string} */
  run;
  /** @type {Side[]} */
  sides;
  /** @type {Lanes[]} */
  lanes;

  /** @param {ConstructorParameters<typeof PhaseView>} given */
  constructor(...given) {
    super(...given);
    const { root } = this;
    this.holder = find(root, ".bv-sides");
    this.totals = new Totals(root);
    this.plots = new BatchPlots(root);
    this.watchTheme();
    this.clear();
  }

  clear() {
    this.start({ run: "", sides: [], prompts: [] });
    this.showOpening();
  }

  /** @param {BatchHead} head */
  start(head) {
    this.begin(head); // first, because it holds the height of the figures
    this.run = String(head.run);
    this.sides = head.sides.map((side) => new Side(side, head.prompts));
    this.lanes = this.sides.map((side) => new Lanes(side, (text) => this.pointed(text)));
    this.holder.replaceChildren(...this.lanes.map((lanes) => lanes.element));
    this.totals.build(this.sides);
    this.plots.renew(null, []);
    const { root } = this;
    buildLegend(find(root, ".bv-legend"), this.methods, root.classList.contains("bv-whole"), (isOn) =>
      root.classList.toggle("bv-whole", isOn),
    );
    this.schedule();
  }

  /**
   * @param {string} target
   * @param {any} data
   */
  line(target, data) {
    const side = this.sides.find(({ name }) => name === (data.side || target));
    if (target === "status") this.say(data);
    else if (target === "figures") this.plots.renew(data, this.methods);
    else if (!side) throw new Error(`The batch has no side ${target}.`);
    else if (target === "totals") side.totals = data;
    else if (target === "rounds") side.rounds = data;
    else if (target === "verdict") side.rows[data.row].verdict = data.right;
    else side.push(data);
  }

  get heading() {
    const [first, second] = this.sides;
    if (!first) return "";
    const against = second ? `, compared with ${second.title}` : "";
    return `${counted(first.rows.length, "prompt")}: ${first.title}${against}`;
  }

  get methods() {
    return this.sides.map(({ method }) => method);
  }

  draw() {
    this.root.dataset.run = this.run;
    this.root.dataset.sides = String(this.sides.length);
    if (!this.sides.length) return;
    const longest = Math.max(...this.sides.map((side) => side.forwards), 1);
    const scale = Math.ceil(longest / SCALE_STEP) * SCALE_STEP;
    const width = this.holder.clientWidth / this.shownBeside() / scale; // of a cell; read first, to avoid a layout
    const turn = { until: performance.now() + (this.feed.recorded ? BUDGET : Infinity), isUsed: false };
    let isWhole = true;
    for (const [index, lanes] of this.lanes.entries()) {
      const limit = this.sides[index].header?.settings?.max_new_tokens ?? 1;
      isWhole = lanes.draw(scale, this.cacheBlock(this.sides[index]), limit, turn) && isWhole;
    }
    const ar = this.sides.find((side) => side.method === "ar");
    for (const lanes of this.lanes) if (ar && lanes.side !== ar) lanes.compare(ar);
    this.root.classList.toggle("bv-digits", width >= 11);
    this.root.classList.toggle("bv-thin", width < 5);
    this.totals.update();
    this.showFinding(batchFinding(this.sides));
    if (!isWhole) this.schedule();
  }

  // The number of methods (sides) that are drawn next to each other; 1 if they are drawn one below the other.
  shownBeside() {
    const [first, second] = this.lanes.map((lanes) => lanes.element.offsetTop);
    return second !== undefined && first === second ? 2 : 1;
  }

  /**
   * Returns the number of positions in a full block, measured as the largest input in the second pass of any row; 1
   * before there is a second pass.
   * @param {Side} side
   */
  cacheBlock(side) {
    const cells = side.rows.flatMap((row) => row.cells[1] || []);
    return cells.length ? Math.max(...cells.map((cell) => cell.filling + cell.scratch)) : 1;
  }

  /** @param {string} [text] */
  pointed(text) {
    if (text) put(this.live, text);
    this.schedule();
  }

  recolour() {
    this.plots.draw();
  }
}

export const mountBatchView = mountOf(BatchView);

/**
 * @param {Row} row
 * @returns {RowLane}
 */
function laneOf(row) {
  const parts = ["committed", "filling", "scratch"].map((name) => make("i", `bv-${name}`));
  const [strip, text] = [make("div", "bv-strip"), make("div", { class: "bv-text", dir: "auto", translate: "no" })];
  const [slots, state] = [make("span", "bv-slots", ...parts), make("span", "bv-state rv-num")];
  const [tokens, verdict] = [make("span", "bv-tokens rv-num"), make("span", "bv-verdict")];
  const beside = make("span", "bv-beside rv-num");
  const label = make(
    "div",
    "bv-label",
    make("b", "bv-number rv-num", String(row.number + 1)),
    make("span", { class: "bv-ask", dir: "auto" }, row.prompt.replace(/\s+/g, " ")),
    beside,
    verdict,
    tokens,
  );
  const cache = make("div", "bv-cache", make("i", "bv-prompt"), slots, state);
  const node = make("section", { class: "bv-lane", "data-row": row.number }, label, strip, cache, text);
  return { row, node, strip, slots, state, text, tokens, verdict, beside, parts, drawn: 0 };
}

const HINT = "Point at a pass, or focus the lanes and use the arrow keys.";

// The lanes of one method: for each row a strip of passes, the state of its KV cache, and its text. The lanes are a
// single tab stop; arrow keys move between passes and rows.
class Lanes {
  /** @type {{ row: Row, forward: number } | null} */
  at = null; // the row and pass that the visitor points at
  /** @type {(Element | null)[]} */
  marked;

  /**
   * @param {Side} side
   * @param {(text?: string) => void} report
   */
  constructor(side, report) {
    this.side = side;
    this.report = report;
    this.scale = 0;
    this.count = make("span", "bv-count rv-num");
    this.readout = make("p", "bv-readout rv-num", HINT);
    this.lanes = side.rows.map((row) => laneOf(row));
    this.list = group(
      "bv-list",
      `Rows of ${side.title}. Left and right arrows move between passes, up and down between rows.`,
      ...this.lanes.map((lane) => lane.node),
    );
    const head = make("header", "bv-head", make("h3", "", side.title), this.count);
    const attributes = { class: "bv-side", "data-side": side.name, "data-method": side.method };
    this.element = make("article", attributes, head, this.readout, this.list);
    this.listen();
  }

  /**
   * Draws new passes. Returns false if the frame's time was used up before all of them were drawn. scale: number of
   * passes that fill the width of a strip; it is the same for both sides.
   * @param {number} scale
   * @param {number} cacheBlock
   * @param {number} limit
   * @param {{ until: number, isUsed: boolean }} turn isUsed: whether a lane was already drawn in this frame; at least one is drawn in each frame
   */
  draw(scale, cacheBlock, limit, turn) {
    const { side } = this;
    if (scale !== this.scale) this.list.style.setProperty("--forwards", String(scale));
    this.scale = scale;
    this.list.style.setProperty("--block", String(side.method === "block" ? cacheBlock / limit : 2));
    put(this.count, side.forwards ? counted(side.forwards, "pass", "passes") : side.end ? "" : "waiting");
    this.element.dataset.forwards = String(side.forwards);
    this.element.dataset.end = side.end ? side.end.reason : "";
    for (const lane of this.lanes) {
      const isNew = lane.drawn < lane.row.cells.length;
      if (isNew && turn.isUsed && performance.now() > turn.until) return false;
      turn.isUsed ||= isNew;
      this.drawLane(lane, limit);
    }
    return true;
  }

  /**
   * Shows for each row whether its text equals AR's.
   * @param {Side} ar
   */
  compare(ar) {
    for (const { row, beside } of this.lanes) {
      const { text, differs } = besideAr(row, ar.rows[row.number]);
      put(beside, text);
      beside.dataset.differs = String(differs);
    }
  }

  /**
   * @param {RowLane} lane
   * @param {number} limit
   */
  drawLane(lane, limit) {
    const { row } = lane;
    for (const cell of row.cells.slice(lane.drawn)) this.append(lane, cell);
    lane.drawn = row.cells.length;
    lane.node.dataset.end = row.end;
    const idle = row.idle ? ` · ${whole(row.idle)} idle` : "";
    put(
      lane.tokens,
      row.cells.length ? `${counted(row.tokens, "token")} · ${counted(row.cells.length, "pass", "passes")}${idle}` : "",
    );
    if (row.verdict !== null) {
      lane.verdict.dataset.right = String(row.verdict);
      put(lane.verdict, verdictText(row.verdict));
    }
    const at = this.at && this.at.row === row ? this.at : null;
    this.drawCache(lane, at ? row.cellAt(at.forward) : row.cells.at(-1), limit);
  }

  /**
   * @param {RowLane} lane
   * @param {RowCell} cell
   */
  append(lane, cell) {
    const number = cell.count > 1 ? String(cell.count) : "";
    const node = make("i", { class: "bv-cell", "data-n": Math.min(cell.count, 5) }, number);
    if (cell.wait) node.dataset.wait = cell.wait;
    if (cell.isCommit) node.classList.add("bv-commit");
    if (!lane.strip.children.length && cell.forward)
      node.style.marginLeft = `calc(100% * ${cell.forward} / var(--forwards))`;
    lane.strip.append(node);
    if (cell.text) {
      const className = cell.count > 1 ? `rv-c rv-n${Math.min(cell.count, 5)}` : "rv-c";
      lane.text.append(make("span", { class: className, "data-forward": cell.forward }, cell.text));
    }
  }

  /**
   * Draws a row's KV cache as a bar: a stub of fixed width for the prompt, then the positions of the answer.
   * @param {RowLane} lane
   * @param {RowCell | undefined} cell
   * @param {number} limit
   */
  drawCache(lane, cell, limit) {
    if (!cell) return;
    put(lane.state, cacheText(this.side, cell));
    const prompt = lane.row.promptTokens;
    const answer = Math.max(0, cell.committed - prompt);
    const isCached = this.side.method !== "uncached";
    const filling = isCached ? cell.filling : Math.max(0, cell.filling - prompt);
    const widths = [isCached ? answer : 0, filling, cell.scratch];
    const used = widths.join("/");
    if (lane.slots.dataset.used === used) return;
    lane.slots.dataset.used = used;
    lane.parts.forEach((part, i) => {
      part.style.width = `${(100 * widths[i]) / limit}%`;
    });
  }

  listen() {
    this.list.addEventListener("pointermove", (event) => {
      const strip = targetOf(event).closest(".bv-strip");
      const lane = this.lanes.find((candidate) => candidate.strip === strip);
      if (!strip || !lane) return this.leave();
      const box = strip.getBoundingClientRect();
      return this.point(lane.row, Math.floor(((event.clientX - box.left) / box.width) * this.scale), false);
    });
    this.list.addEventListener("pointerleave", () => this.leave());
    this.list.addEventListener("blur", () => this.leave());
    this.list.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    /** @type {Record<string, [number, number]>} */
    const moves = {
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      Home: [0, -Infinity],
      End: [0, Infinity],
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const { rows } = this.side;
    const number = this.at ? Math.min(rows.length - 1, Math.max(0, this.at.row.number + move[0])) : 0;
    const row = rows[number];
    if (!row.cells.length) return;
    const target = this.at ? this.at.forward + move[1] : row.cells[0].forward;
    this.point(row, Math.min(lastOf(row.cells).forward, Math.max(row.cells[0].forward, target)), true);
  }

  /**
   * @param {Row} row
   * @param {number} forward
   * @param {boolean} isKey
   */
  point(row, forward, isKey) {
    const cell = row.cellAt(forward);
    if (!cell) return this.leave();
    if (this.at && this.at.row === row && this.at.forward === forward) return undefined;
    this.unmark();
    this.at = { row, forward };
    const lane = this.lanes[row.number];
    this.marked = [
      lane.strip.children[forward - row.cells[0].forward],
      lane.text.querySelector(`[data-forward="${forward}"]`),
    ];
    for (const node of this.marked) if (node) node.classList.add("bv-at");
    put(this.readout, cellText(this.side, row, cell));
    if (isKey) {
      this.report(this.readout.textContent);
      lane.node.scrollIntoView({ block: "nearest" });
    }
    return this.report();
  }

  leave() {
    if (!this.at) return;
    this.unmark();
    this.at = null;
    put(this.readout, HINT);
    this.report();
  }

  unmark() {
    for (const node of this.marked || []) if (node) node.classList.remove("bv-at");
    this.marked = [];
  }
}
