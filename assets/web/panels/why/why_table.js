// The proposals of one forward as a table: bars on one scale with the threshold drawn through them, what became of
// each, its runners-up. Rows are built once for a forward; what comes afterwards is filled in as the run goes on.

import { factsOf } from "../../core/methods.js";
import { probability, short } from "../../core/words.js";
import { make, put } from "../../core/dom.js";
import { fateText, laterText } from "./why_words.js";

const HEADS = [
  ["place", "token"],
  ["token", "proposal"],
  ["bar", ""],
  ["value", ""],
  ["fate", "what became of it"],
  ["later", "afterwards"],
  ["chips", "runners-up, probability"],
];

export class WhyTable {
  /** @type {{ node: HTMLElement, cells: Record<string, HTMLTableCellElement>, canBranch: boolean | null }[]} */
  rows;
  /** @type {Set<number>} */
  ends;

  /**
   * branch: can(row), whether one can go on from a place; go(place, id) does, with any token but one of `ends`.
   * @param {{ can(row: ProposalRow): boolean, go(place: number, id: number): void }} branch
   */
  constructor(branch) {
    this.branch = branch;
    this.element = make("table", "rv-wh-table");
    this.caption = make("caption");
    this.head = make("tr");
    this.body = make("tbody");
    const top = make("thead");
    top.append(this.head);
    this.element.append(this.caption, top, this.body);
    this.rows = [];
  }

  /**
   * @param {Lane} lane
   * @param {Step} step
   * @param {ProposalRow[]} rows
   * @param {Set<number>} ends
   */
  build(lane, step, rows, ends) {
    this.ends = ends;
    const settings = { ...step.settings, tau: step.tau };
    const hasTau = factsOf(settings).obeys.includes("tau") && Number.isFinite(settings.tau);
    put(
      this.caption,
      `Proposals of forward ${step.index + 1}${hasTau ? `, threshold τ ${short(Number(settings.tau))}` : ""}`,
    );
    this.element.classList.toggle("rv-wh-tau", hasTau);
    this.element.style.setProperty("--tau", hasTau ? String(settings.tau) : "0");
    this.head.replaceChildren(...HEADS.map(([key, text]) => heading(key, text, settings, hasTau)));
    this.rows = rows.map((row) => this.row(lane, row));
    this.body.replaceChildren(...this.rows.map((row) => row.node));
    this.refresh(lane, rows);
  }

  /**
   * @param {Lane} lane
   * @param {ProposalRow} row
   */
  row(lane, row) {
    const node = make("tr");
    node.dataset.fate = row.fate;
    const cells = Object.fromEntries(HEADS.map(([key]) => [key, make(key === "token" ? "th" : "td", `rv-wh-${key}`)]));
    cells.token.scope = "row";
    put(cells.place, String(row.place + 1));
    cells.place.classList.add("rv-num");
    const bar = make("span", "rv-wh-track");
    const fill = make("i");
    fill.style.width = `${100 * Math.max(0, Math.min(1, row.confidence))}%`;
    bar.append(fill);
    cells.bar.append(bar);
    put(cells.value, probability(row.confidence));
    cells.value.classList.add("rv-num");
    put(cells.fate, fateText(lane, row));
    node.append(...Object.values(cells));
    return { node, cells, canBranch: null };
  }

  /**
   * What may change while the run goes on: what stands there now, and whether one can go on from there.
   * @param {Lane} lane
   * @param {ProposalRow[]} rows
   */
  refresh(lane, rows) {
    rows.forEach((row, i) => {
      const { cells, node } = this.rows[i];
      const [kind, text] = laterText(lane, row);
      node.dataset.later = kind;
      put(cells.later, text);
      const canBranch = this.branch.can(row);
      if (canBranch === this.rows[i].canBranch) return;
      this.rows[i].canBranch = canBranch;
      const isLeft = row.verdict !== null;
      cells.token.replaceChildren(this.chip(lane, row, row.id, "", canBranch && isLeft));
      cells.chips.replaceChildren(
        ...row.runnersUp.map(([id, p]) => this.chip(lane, row, id, probability(p), canBranch)),
      );
    });
  }

  /**
   * @param {Lane} lane
   * @param {ProposalRow} row
   * @param {number} id
   * @param {string} p
   * @param {boolean} canPress
   */
  chip(lane, row, id, p, canPress) {
    const name = lane.tokenName(id);
    const isButton = canPress && !this.ends.has(id) && (!row.token || row.token.id !== id);
    const parts = [make("code", "", name), ...(p ? [make("small", "rv-num", p)] : [])];
    const plain = make("span", "rv-wh-chip");
    if (!isButton) plain.append(...parts);
    if (!isButton) return plain;
    const node = make("button", "rv-wh-chip");
    node.append(...parts);
    node.type = "button";
    node.title = `Go on from token ${row.place + 1} with “${name}”`;
    node.setAttribute("aria-label", p ? `${node.title}, ${p}` : node.title);
    node.addEventListener("click", () => this.branch.go(row.place, id));
    return node;
  }
}

/**
 * @param {string} key
 * @param {string} text
 * @param {Partial<Settings>} settings
 * @param {boolean} hasTau
 */
function heading(key, text, settings, hasTau) {
  const node = make("th", `rv-wh-${key}`, text);
  node.scope = "col";
  if (key === "value") node.setAttribute("aria-label", "confidence");
  if (key !== "bar") return node;
  const name = make("span", "rv-wh-metric", settings.metric || "probability");
  node.append(name);
  if (!hasTau) return node;
  const mark = make("span", "rv-wh-mark rv-num", `τ ${short(Number(settings.tau))}`);
  node.append(mark);
  return node;
}
