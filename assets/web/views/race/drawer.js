// The drawer of a pass: its proposals with their confidences and what became of them, other tokens to continue with,
// another threshold, and the places where a pass went wrong. It is open while a pass is chosen (`view.choose`).

import { runColours } from "../../core/colours.js";
import { attribute, button, fill, make, placeIn, put } from "../../core/dom.js";
import { draftIds, mainLane } from "../../core/folds.js";
import { factsOf, isVerified } from "../../core/methods.js";
import { capital, counted, joined, milliseconds, probability, short, whole } from "../../core/words.js";
import { placesAround, placesOf } from "../../folds/places.js";
import { endIds, isLossless, numChecked, proposalRows } from "../../folds/proposals.js";
import { countWithTau } from "../../folds/whatif.js";
import { sourceText, whyText } from "../../text/reasons.js";
import { settingsText } from "../../text/settings.js";

const LISTED = 200; // maximum number of places in the list

export class Drawer {
  /** @type {Focus | null} */
  shown = null;
  /** @type {Place[]} */
  places = []; // of the lane `placed`
  /** @type {Lane} */
  placed;
  around = { here: -1, previous: -1, next: -1 }; // indices of places

  /**
   * @param {HTMLElement} element
   * @param {View} view
   */
  constructor(element, view) {
    this.element = element;
    this.view = view;
    this.drawn = ""; // the state of the drawn pass
    this.listed = ""; // the state of the drawn list of places
    attribute(element, { "aria-label": "Pass", tabindex: -1, translate: "no" });
    this.title = make("h3");
    /** @type {(label: string, text: string, act: () => void) => HTMLButtonElement} */
    const small = (label, text, act) => button({ "aria-label": label, title: label }, text, act);
    this.passes = [-1, 1].map((by) =>
      small(by < 0 ? "Previous pass" : "Next pass", by < 0 ? "‹" : "›", () => this.step(by)),
    );
    this.close = small("Close", "✕", () => view.choose(null));
    this.close.classList.add("dr-close");
    this.where = make("span");
    this.jumps = [-1, 1].map((by) =>
      small(by < 0 ? "Previous place" : "Next place", by < 0 ? "‹" : "›", () => this.jump(by)),
    );
    this.facts = make("p", "dr-facts rv-num");
    this.why = make("p", "dr-why");
    this.scale = make("p", "dr-facts rv-num");
    this.rows = make("ol", "dr-rows");
    this.tau = make("input", { type: "number", min: 0, max: 1, step: 0.05, "aria-label": "Another τ for this pass" });
    this.tau.addEventListener("input", () => this.drawWhatIf());
    this.would = make("span", { "aria-live": "polite" });
    this.whatIf = make("p", "dr-tau rv-num", make("label", "", "At τ ", this.tau, " "), this.would);
    this.listTitle = make("h4");
    this.list = make("ol", "dr-places rv-num");
    element.replaceChildren(
      make(
        "header",
        "dr-head",
        make("div", "dr-line", this.title, ...this.passes, this.close),
        make("div", "dr-line dr-where rv-num", this.where, ...this.jumps),
      ),
      make("div", "dr-body", this.facts, this.why, this.scale, this.rows, this.whatIf, this.listTitle, this.list),
    );
  }

  // Opens, redraws or closes the drawer, as the view's chosen pass requires.
  draw() {
    const { element, view } = this;
    const { selected } = view;
    const isOpening = selected && !this.shown;
    if (!selected) return this.shut();
    const { lane, step: index, token = -1 } = selected;
    const isMoved = this.shown?.lane !== lane || this.shown.step !== index || this.shown.token !== token;
    this.shown = selected;
    element.hidden = false;
    attribute(element, {
      ...{ "data-lane": lane.name, "data-colour": runColours.placeOf(lane) },
      ...{ "data-pass": index + 1, "data-token": token + 1 },
    });
    put(this.title, `${capital(lane.title)}: pass ${whole(index + 1)} of ${whole(lane.steps.length)}`);
    this.passes.forEach((node, i) => void (node.disabled = !lane.steps[index + (i ? 1 : -1)]));
    const ends = endIds(view.run.lanes);
    this.drawPass(lane, lane.steps[index], token, ends);
    this.drawPlaces(lane, lane.steps[index], token);
    if (isMoved) this.reveal();
    if (isOpening && view.isByKey) element.focus({ preventScroll: true });
    return undefined;
  }

  shut() {
    if (!this.shown) return;
    const { lane } = this.shown;
    const hadFocus = this.element.contains(document.activeElement);
    this.shown = null;
    this.drawn = "";
    this.element.hidden = true;
    if (hadFocus) this.view.paneOf(lane)?.view.element.focus({ preventScroll: true });
  }

  // Scrolls so that the drawer's token is in sight and, on a phone, not covered by the drawer.
  reveal() {
    const { element, shown } = this;
    const { lane, token = -1, step } = /** @type {Focus} */ (shown);
    const row = token >= 0 ? this.rows.children[token - lane.steps[step].first] : undefined;
    const body = /** @type {HTMLElement} */ (element.lastElementChild);
    body.scrollTop = 0;
    const seen = Math.min(body.clientHeight, window.innerHeight - body.getBoundingClientRect().top - 8);
    if (row instanceof HTMLElement) body.scrollTop = placeIn(body, row) + row.offsetHeight - seen;
    if (getComputedStyle(element).position !== "fixed") return;
    const pressed = this.view.paneOf(lane)?.view.chunks[step]?.getBoundingClientRect();
    const hidden = pressed ? pressed.bottom + 16 - element.getBoundingClientRect().top : 0;
    if (hidden > 0) window.scrollBy(0, hidden);
  }

  /** @param {number} by */
  step(by) {
    const { lane, step } = /** @type {Focus} */ (this.shown);
    this.view.choose(lane, step + by);
  }

  /** @param {number} by */
  jump(by) {
    const { previous, next } = this.around;
    this.goTo(this.places[by < 0 ? previous : next]);
  }

  /** @param {Place | undefined} place */
  goTo(place) {
    if (place) this.view.choose(this.placed, place.step, place.token);
  }

  /**
   * @param {Lane} lane
   * @param {Step} step
   * @param {number} token
   * @param {Set<number>} ends
   */
  drawPass(lane, step, token, ends) {
    const rows = proposalRows(lane, step.index, ends);
    const state = `${this.view.run.id} ${lane.name} ${step.index} ${token} ${JSON.stringify(rows.map(({ verdict, token: later }) => [verdict, later?.step.index, later?.check?.id]))} ${[...ends]} ${lane.end?.reason}`;
    if (state === this.drawn) return;
    this.drawn = state;
    const last = step.first + step.count;
    const tokens = step.count > 1 ? `tokens ${whole(step.first + 1)} to ${whole(last)}` : `token ${whole(last)}`;
    put(
      this.facts,
      joined(
        step.count > 0 && tokens,
        fedText(lane, step),
        settingsText(step.settings),
        `${milliseconds(step.seconds)} ms`,
      ),
    );
    put(this.why, whyText(lane, step));
    const hasTau = factsOf(step.settings).obeys.includes("tau") && Number.isFinite(step.tau);
    const { metric } = step.settings;
    put(
      this.scale,
      joined(
        `Proposals with ${metric === "probability" || !metric ? "confidence" : metric}`,
        hasTau && `line: τ ${short(step.tau)}`,
      ),
    );
    this.rows.classList.toggle("dr-has-tau", hasTau);
    this.rows.style.setProperty("--tau", String(hasTau ? step.tau : 0));
    this.rows.replaceChildren(...rows.map((row) => this.row(lane, step, row, ends, row.place === token)));
    this.whatIf.hidden = !hasTau;
    if (hasTau && this.tau.value === "") this.tau.value = short(step.tau);
    this.drawWhatIf();
  }

  /**
   * @param {Lane} lane
   * @param {Step} step
   * @param {ProposalRow} row
   * @param {Set<number>} ends
   * @param {boolean} isChosen
   */
  row(lane, step, row, ends, isChosen) {
    const canBranch = this.canBranch(lane, row);
    /** @type {(id: number, p?: number) => HTMLElement} */
    const chip = (id, p) => {
      const name = make("code", "", lane.tokenName(id));
      const parts = p === undefined ? [name] : [name, make("small", "", probability(p))];
      if (!canBranch || ends.has(id) || row.token?.id === id) return make("span", "dr-chip", ...parts);
      const label = `Continue from token ${row.place + 1} with “${lane.tokenName(id)}”`;
      return button({ class: "dr-chip", title: label, "aria-label": label }, parts, () =>
        this.view.ask("branch", { lane, token: row.place, id }),
      );
    };
    const share = 100 * Math.max(0, Math.min(1, row.confidence));
    const others = row.runnersUp.map(([id, p]) => chip(id, p));
    const attributes = {
      "data-fate": row.fate,
      "data-place": row.place + 1,
      ...(isChosen ? { "aria-current": "true" } : {}),
    };
    return make(
      "li",
      attributes,
      make(
        "div",
        "dr-proposal rv-num",
        row.verdict === null ? make("code", "", lane.tokenName(row.id)) : chip(row.id),
        make("span", "dr-track", make("i", { style: `width: ${share}%` })),
        make("span", "", probability(row.confidence)),
      ),
      make("p", "dr-fate", ...fateTexts(lane, step, row)),
      ...(others.length ? [make("p", "dr-others rv-num", "or ", ...others)] : []),
    );
  }

  /**
   * Returns whether a branch can start at a proposal: the run must have written, before the proposal's position, the
   * text that the proposal continued.
   * @param {Lane} lane
   * @param {ProposalRow} row
   */
  canBranch(lane, row) {
    const hasSameText = row.fate !== "past" && row.fate !== "dropped" && row.verdict !== "unknown";
    return hasSameText && row.place <= lane.tokens.length && this.view.canAsk("branch");
  }

  // Evaluates the pass with the threshold in the number field.
  drawWhatIf() {
    const { lane, step: index } = /** @type {Focus} */ (this.shown);
    const tau = this.tau.valueAsNumber;
    const isValid = tau >= 0 && tau <= 1;
    const num = isValid ? countWithTau(lane, index, tau, endIds(this.view.run.lanes)) : 0;
    const step = lane.steps[index];
    const [verb, did] = isLossless(step) ? ["draft", draftIds(step).length] : ["accept", step.count];
    const change = num === did ? ", as it did" : `, not ${did}; later passes would then differ`;
    attribute(this.whatIf, { "data-num": isValid ? num : "" });
    put(this.would, isValid ? `it would ${verb} ${counted(num, "token")}${change}.` : "between 0 and 1");
  }

  /**
   * @param {Lane} lane
   * @param {Step} step
   * @param {number} token
   */
  drawPlaces(lane, step, token) {
    const { lanes } = this.view.run;
    this.placed = lane.isAr ? mainLane(this.view.run) : lane;
    const ar = lanes.find((other) => other.isAr && other !== this.placed) ?? null;
    this.places = this.placed.isAr ? [] : placesOf(this.placed, ar);
    const { places, placed } = this;
    const at = token < 0 && lane !== placed ? step.first : token;
    this.around = placesAround(places, step, at);
    const { here, previous, next } = this.around;
    this.jumps.forEach((node, i) => void (node.disabled = (i ? next : previous) < 0));
    attribute(this.element, { "data-places": places.length, "data-here": here + 1 });
    put(this.where, placesText(placed, places, here));
    const state = `${placed.name} ${placed.title} ${JSON.stringify(places.slice(0, LISTED))}`;
    put(this.listTitle, places.length ? listText(placed) : "");
    if (state !== this.listed) {
      this.listed = state;
      fill(
        this.list,
        places.slice(0, LISTED).map((place) => this.entry(placed, place)),
      );
    }
    [...this.list.children].forEach((node, i) => attribute(node, { "aria-current": i === here }));
  }

  /**
   * @param {Lane} lane
   * @param {Place} place
   */
  entry(lane, place) {
    const { isFirst, kind, mine, ar, p, step, token } = place;
    const parts = [
      make("span", "dr-pass", `pass ${whole(step + 1)}`),
      make("code", "", lane.tokenName(mine)),
      make("span", "", kind === "corrected" ? "→ AR wrote" : "AR:"),
      make("code", "", lane.tokenName(ar)),
      make("span", "", p !== null && Number.isFinite(p) ? probability(p) : ""),
      ...(isFirst ? [make("b", "", "first different token")] : []),
    ];
    return make(
      "li",
      { "data-kind": kind },
      button({ "data-token": token + 1 }, parts, () => this.goTo(place)),
    );
  }
}

/**
 * @param {Lane} lane
 * @param {Place[]} places
 * @param {number} here
 */
function placesText(lane, places, here) {
  const isSafe = lane.steps.every(({ settings }) => isVerified(settings));
  if (lane.isAr) return "Plain AR: one token per pass";
  if (places.length)
    return `${isSafe ? "AR corrected a draft" : "AR chose differently"}: ${here < 0 ? counted(places.length, "place") : `place ${here + 1} of ${places.length}`}`;
  if (isSafe) return "AR corrected no draft";
  return lane.tokens.some(({ check }) => check)
    ? "AR would have chosen the same tokens"
    : "No record of AR's choices in this run";
}

/** @param {Lane} lane */
const listText = (lane) =>
  lane.steps.every(({ settings }) => isVerified(settings))
    ? "Where AR corrected a draft"
    : "Where AR would have chosen another token";

/**
 * Describes the masks and drafts in the input of a pass; empty if there were none.
 * @param {Lane} lane
 * @param {Step} step
 */
function fedText(lane, { index, fed, pending }) {
  const [masks, drafts] = [fed - pending, numChecked(lane, index)];
  return joined(masks > 0 && counted(masks, "mask"), drafts > 0 && `${counted(drafts, "draft")} verified`);
}

/** @type {Record<string, string>} */
const FATES = {
  own: "✓ accepted: AR's own",
  taken: "✓ accepted",
  confirmed: "✓ accepted: AR confirmed the draft",
  drafted: "drafted, for the next pass to verify",
  refused: "✗ rejected",
  unseen: "✗ not considered",
  outbid: "prompt lookup was used instead",
  dropped: "✗ dropped: it continued a rejected draft",
  past: "after the end",
};

/** @type {Record<string, string>} */
const REASONS = { refused: ": below τ", own: ", from a real token, so at any τ" };

/**
 * Describes what became of a proposal, and what the run wrote there.
 * @param {Lane} lane
 * @param {Step} step
 * @param {ProposalRow} row
 * @returns {Node[]}
 */
function fateTexts(lane, step, row) {
  const { token } = row;
  const isUnused = row.fate === "refused" || row.fate === "unseen";
  const isBelow = row.confidence < step.tau && factsOf(step.settings).obeys.includes("tau");
  const reason = isBelow ? (REASONS[row.fate] ?? "") : "";
  const own =
    row.fate === "replaced"
      ? `✓ AR's own, instead of the draft “${lane.tokenName(Number(row.draft))}”`
      : `${isUnused && isLossless(step) ? "✗ not drafted" : FATES[row.fate]}${reason}`;
  const source = token && token.step === step && row.fate === "taken" ? sourceText(lane, token) : "";
  const [kind, later] = laterText(lane, row);
  return [make("span", "", joined(own, source)), ...(later ? [make("span", { "data-later": kind }, later)] : [])];
}

/**
 * Describes the token that the run later wrote at a proposal's position or, for an accepted token, AR's choice, which
 * the next pass reports. kind: "same", "other" or "none".
 * @param {Lane} lane
 * @param {ProposalRow} row
 * @returns {[kind: string, text: string]}
 */
function laterText(lane, { fate, token, verdict }) {
  if (verdict === "same" && token) return ["same", `pass ${token.step.index + 1} wrote the same token`];
  if (verdict === "other" && token)
    return ["other", `pass ${token.step.index + 1} wrote “${lane.tokenName(token.id)}” instead`];
  if (verdict === "unwritten") return ["none", lane.end ? "the run ended before it" : "nothing is written there yet"];
  if (verdict === "unknown" && fate !== "dropped") return ["none", "the text before it changed"];
  if (fate !== "taken" || !token?.check) return ["none", ""];
  const { id, p } = token.check;
  if (id === token.id) return ["same", `AR would choose it too (${probability(p)})`];
  return ["other", `AR would choose “${lane.tokenName(id)}” (${probability(p)})`];
}
