// The panel "Why here?": every proposal of a pass, why no more of them were accepted, what the run wrote instead, and
// buttons that branch with another token. Shows the chosen pass, or the latest displayed one.

import { attribute, button, make, put } from "../core/dom.js";
import { factsOf } from "../core/methods.js";
import { counted, joined, probability, short, whole } from "../core/words.js";
import { endIds, numChecked, proposalRows } from "../folds/proposals.js";
import { settingsText, whyText } from "../text/card.js";

const BRANCH = "Click a token to branch: the run continues from there with that token.";

export class WhyPanel {
  /** @type {Focus | null} */
  held;
  /** @type {Focus} */
  shown;

  static id = "why";

  static title = "Why here?";

  /**
   * @param {HTMLElement} element
   * @param {View} view
   */
  constructor(element, view) {
    this.element = element;
    this.view = view;
    element.classList.add("rv-wh");
    this.lane = make("b", "rv-wh-lane");
    this.where = make("span", "rv-wh-where rv-num");
    this.settings = make("span", "rv-wh-settings rv-num");
    /** @param {number} by */
    const step = (by) => this.view.choose(this.shown.lane, this.shown.step + by);
    this.buttons = [
      button({ class: "rv-wh-step", "aria-label": "previous pass" }, "‹ previous", () => step(-1)),
      button({ class: "rv-wh-step", "aria-label": "next pass" }, "next ›", () => step(1)),
    ];
    const buttons = make("span", "rv-wh-steps", ...this.buttons);
    const head = make("div", "rv-wh-head", this.lane, this.where, this.settings, buttons);
    this.sentence = make("p", "rv-wh-say");
    this.hint = make("p", "rv-wh-hint", BRANCH);
    this.table = new WhyTable({ can: (row) => this.canBranch(row), go: (place, id) => this.branch(place, id) });
    element.append(head, this.sentence, this.table.element, this.hint);
    this.hold();
  }

  // Keeps showing the same pass while the pointer or the focus is in the table. Otherwise a live run would replace the
  // table under the pointer.
  hold() {
    const { element } = this.table;
    const hold = () => {
      this.held = this.shown;
    };
    const release = () => {
      if (element.matches(":hover") || element.contains(document.activeElement)) return;
      this.held = null;
      this.draw();
    };
    for (const name of ["pointerenter", "focusin"]) element.addEventListener(name, hold);
    for (const name of ["pointerleave", "focusout"]) element.addEventListener(name, () => setTimeout(release));
  }

  // Returns the pass to show: the chosen one or the latest displayed one. A pass that is held under the pointer stays
  // until the visitor chooses a pass or starts another run.
  focus() {
    const { view, held } = this;
    const focus = view.focus;
    const isFree = !held || view.selected || !view.run.lanes.includes(held.lane) || !view.playhead.isFollowing;
    if (isFree) this.held = null;
    return this.held || focus;
  }

  draw() {
    const { lane, step: index } = this.focus();
    const step = lane.steps[index];
    const isEmpty = !step;
    this.table.element.hidden = isEmpty;
    this.hint.hidden = isEmpty || !this.view.canAsk("branch");
    this.buttons.forEach((button, i) => {
      button.disabled = isEmpty || !lane.steps[index + (i ? 1 : -1)];
    });
    put(this.lane, lane.title);
    put(this.where, isEmpty ? "" : whereText(lane, step));
    put(this.settings, isEmpty ? "" : settingsText(step.settings));
    if (isEmpty) return put(this.sentence, "No pass to show yet.");
    const ends = endIds(this.view.run.lanes);
    const rows = proposalRows(lane, index, ends);
    const isSame = this.shown && this.shown.lane === lane && this.shown.step === index;
    this.shown = { lane, step: index };
    if (isSame) this.table.refresh(lane, rows);
    else this.table.build(lane, step, rows, ends);
    return put(this.sentence, `${whyText(lane, step)} ${afterText(lane, rows)}`.trim());
  }

  /**
   * Returns whether a branch can start at a proposal: the run must have written, before the proposal's position, the
   * text that the proposal continued.
   * @param {ProposalRow} row
   */
  canBranch(row) {
    const { lane } = this.shown;
    const hasSameText =
      this.view.canAsk("branch") && row.fate !== "past" && row.fate !== "dropped" && row.verdict !== "unknown";
    return hasSameText && row.place <= lane.tokens.length;
  }

  /**
   * @param {number} place
   * @param {number} id
   */
  branch(place, id) {
    this.view.ask("branch", { lane: this.shown.lane, token: place, id });
  }
}

/**
 * @param {Lane} lane
 * @param {Step} step
 */
function whereText(lane, step) {
  const [first, last] = [step.first + 1, step.first + step.count];
  const tokens = first === last ? `token ${whole(first)}` : `tokens ${whole(first)} to ${whole(last)}`;
  return joined(`pass ${whole(step.index + 1)} of ${whole(lane.steps.length)}`, tokens, fedText(lane, step));
}

/**
 * Describes the masks and drafts in the input of a pass; empty if there were none.
 * @param {Lane} lane
 * @param {Step} step
 */
function fedText(lane, { index, fed, pending }) {
  const [masks, drafts] = [fed - pending, numChecked(lane, index)];
  return joined(masks > 0 ? `${counted(masks, "mask")} fed` : "", drafts ? `${counted(drafts, "draft")} checked` : "");
}

const HEADS = [
  ["place", "token"],
  ["token", "proposal"],
  ["bar", ""],
  ["value", ""],
  ["fate", "result"],
  ["later", "then"],
  ["chips", "alternatives, probability"],
];

// The proposals of a pass as a table: a bar for each confidence, with the threshold drawn across the bars, what became
// of the proposal, and its runners-up. Rows are built once per pass; later results are filled in during the run.
class WhyTable {
  /** @type {{ node: HTMLElement, cells: Record<string, HTMLTableCellElement>, canBranch: boolean | null }[]} */
  rows = [];
  /** @type {Set<number>} */
  ends;

  /**
   * branch.can: returns whether a branch can start at a proposal. branch.go: starts a branch at a position with a
   * token.
   * @param {{ can(row: ProposalRow): boolean, go(place: number, id: number): void }} branch
   */
  constructor(branch) {
    this.branch = branch;
    this.caption = make("caption");
    this.head = make("tr");
    this.body = make("tbody");
    this.element = make("table", "rv-wh-table", this.caption, make("thead", "", this.head), this.body);
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
      `Proposals of pass ${step.index + 1}${hasTau ? `, threshold τ ${short(Number(settings.tau))}` : ""}`,
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
    const cells = Object.fromEntries(HEADS.map(([key]) => [key, make(key === "token" ? "th" : "td", `rv-wh-${key}`)]));
    cells.token.scope = "row";
    put(cells.place, String(row.place + 1));
    cells.place.classList.add("rv-num");
    const width = `width: ${100 * Math.max(0, Math.min(1, row.confidence))}%`;
    cells.bar.append(make("span", "rv-wh-track", make("i", { style: width })));
    put(cells.value, probability(row.confidence));
    cells.value.classList.add("rv-num");
    put(cells.fate, fateText(lane, row));
    return { node: make("tr", { "data-fate": row.fate }, ...Object.values(cells)), cells, canBranch: null };
  }

  /**
   * Updates the parts of the table that can change during the run: the token at each position, and whether a branch is
   * possible.
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
    if (!isButton) return make("span", "rv-wh-chip", ...parts);
    const title = `Continue from token ${row.place + 1} with “${name}”`;
    const label = p ? `${title}, ${p}` : title;
    return button({ class: "rv-wh-chip", title, "aria-label": label }, parts, () => this.branch.go(row.place, id));
  }
}

/**
 * @param {string} key
 * @param {string} text
 * @param {Partial<Settings>} settings
 * @param {boolean} hasTau
 */
function heading(key, text, settings, hasTau) {
  const node = make("th", { class: `rv-wh-${key}`, scope: "col" }, text);
  if (key === "value") attribute(node, { "aria-label": "confidence" });
  if (key === "bar") node.append(make("span", "rv-wh-metric", settings.metric || "probability"));
  if (key === "bar" && hasTau) node.append(make("span", "rv-wh-mark rv-num", `τ ${short(Number(settings.tau))}`));
  return node;
}

/** @type {(lane: Lane, id: number) => string} */
const quoted = (lane, id) => `“${lane.tokenName(id)}”`;

/**
 * Returns the token that the run wrote at a proposal's position. Call only for a row with the verdict "same" or
 * "other", which has such a token.
 * @param {ProposalRow} row
 */
const written = (row) => /** @type {Token} */ (row.token);

/** @type {Record<string, string>} */
const FATES = {
  own: "accepted, AR's own",
  taken: "accepted",
  confirmed: "draft, confirmed by AR",
  drafted: "drafted",
  refused: "first rejected",
  unseen: "not considered",
  outbid: "lookup used instead",
  dropped: "dropped",
  past: "after the end",
};

/**
 * @param {Lane} lane
 * @param {ProposalRow} row
 */
function fateText(lane, row) {
  if (row.fate === "replaced") return `AR's own, instead of the draft ${quoted(lane, Number(row.draft))}`;
  return FATES[row.fate];
}

/**
 * Describes the token that the run later wrote at a proposal's position. kind: "same", "other" or "none".
 * @param {Lane} lane
 * @param {ProposalRow} row
 * @returns {[kind: string, text: string]}
 */
function laterText(lane, row) {
  const { token } = row;
  if (row.verdict === "same") return ["same", `✓ same token, pass ${written(row).step.index + 1}`];
  if (row.verdict === "other") {
    const { id, step } = written(row);
    return ["other", `≠ ${quoted(lane, id)} instead, pass ${step.index + 1}`];
  }
  if (row.verdict === "unwritten") return ["none", lane.end ? "the run ended" : "not written yet"];
  if (row.verdict === "unknown") return ["none", row.fate === "dropped" ? "" : "? the text before it changed"];
  if (row.fate === "taken" && token && token.check) return checkText(lane, token.id, token.check);
  return ["none", ""];
}

/**
 * Compares an accepted token with AR's choice, which the next pass reports because it has the token as input.
 * @param {Lane} lane
 * @param {number} id
 * @param {{ id: number, p: number }} check
 * @returns {[kind: string, text: string]}
 */
function checkText(lane, id, check) {
  if (check.id === id) return ["same", `✓ AR too, ${probability(check.p)}`];
  return ["other", `≠ AR: ${quoted(lane, check.id)}, ${probability(check.p)}`];
}

/**
 * Describes what the run wrote instead of the rejected proposals, or what became of the drafts; empty if that is
 * unknown.
 * @param {Lane} lane
 * @param {ProposalRow[]} rows
 */
function afterText(lane, rows) {
  const dropped = rows.filter((row) => row.fate === "dropped").length;
  if (dropped)
    return dropped === 1
      ? "The proposal after it continued the draft and was dropped."
      : `The ${dropped} proposals after it continued the draft and were dropped.`;
  const rejected = rows.filter((row) => row.fate === "refused" || row.fate === "unseen");
  if (!rejected.length)
    return draftsText(
      lane,
      rows.filter((row) => row.fate === "drafted"),
    );
  const { verdict } = rejected[0];
  if (verdict === "unwritten")
    return lane.end
      ? "The run ended before another token was written there."
      : "The token in its place is not written yet.";
  if (verdict === "other")
    return `Pass ${written(rejected[0]).step.index + 1} wrote ${quoted(lane, written(rejected[0]).id)} instead.`;
  if (verdict !== "same") return "";
  const first = rejected.findIndex((row) => row.verdict !== "same");
  const num = first < 0 ? rejected.length : first;
  if (num === 1)
    return `Pass ${written(rejected[0]).step.index + 1} then wrote the same token: the rejected proposal was right.`;
  return `The run then wrote the same ${num} tokens: the rejected proposals were right.`;
}

/**
 * @param {Lane} lane
 * @param {ProposalRow[]} drafts
 */
function draftsText(lane, drafts) {
  const judged = drafts.filter((row) => row.verdict !== "unwritten");
  if (!judged.length) return "";
  const wrong = drafts.findIndex((row) => row.verdict === "other");
  if (wrong < 0) return `AR then agreed with ${drafts.length === 1 ? "the draft" : `all ${drafts.length} drafts`}.`;
  const agreed = wrong ? `AR then agreed with ${counted(wrong, "draft")} and wrote` : "AR then wrote";
  return `${agreed} ${quoted(lane, written(drafts[wrong]).id)} instead of ${quoted(lane, drafts[wrong].id)}.`;
}
