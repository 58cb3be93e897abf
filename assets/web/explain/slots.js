// The picture of recorded passes as KV cache slots, with the lanes one below the other: the input of each slot, its
// prediction, what became of the prediction, and a sentence about the pass. Each pass is shown at two moments: when its
// input is fed, and when its output is read. Positions (place) are counted from the end of the prompt: -1 is its last
// token, 0 the first output token.

import { attribute, button, group, isModified, make, put, targetOf } from "../core/dom.js";
import { draftIds, headerOf, lastOf } from "../core/folds.js";
import { Lane } from "../core/trace.js";
import { counted, probability, short } from "../core/words.js";
import { proposalRows } from "../folds/proposals.js";
import { promptTokens, slotsAt } from "../folds/slots.js";
import { keyList } from "./parts.js";

/** @type {Record<string, string>} */
const NAMES = { final: "final", pending: "fed again", draft: "draft", mask: "mask", ahead: "" };
/** @type {Record<string, string>} */
const MARKS = { accepted: "✓", agreed: "✓", replaced: "↺", refused: "✗", dropped: "✗", draft: "?" };
/** @type {Record<string, string>} */
const TITLES = { agreed: "confirmed by AR", replaced: "replaced by AR's token", refused: "rejected" };

class SlotLane {
  /** @type {{ place: number, above: HTMLElement, below: HTMLElement }[]} */
  columns;
  /** @type {number} */
  width;

  /** @param {SlotRun} run */
  constructor(run) {
    this.run = run;
    this.count = make("span", "ex-count");
    this.grid = make("div", { class: "ex-slots", "aria-hidden": "true" });
    const label = `Cache slots of ${run.title}. Left and right arrows step, space plays.`;
    this.strip = group("ex-strip", label, this.grid);
    this.parts = ["final", "pending", "mask"].map((kind) => make("i", `ex-part ex-${kind}`));
    const head = make("header", "ex-lanehead", make("h4", "", run.title), this.count);
    this.element = make("section", "ex-lane", head, this.strip, make("div", "ex-bar", ...this.parts));
    this.build();
  }

  // Creates a column for each position: the input above, and the prediction for this position below.
  build() {
    const { run } = this;
    this.width = Math.max(...run.forwards.map((f) => Math.max(f.first + f.numFed, lastOf(f.predicted).place + 1))) + 1;
    this.grid.style.setProperty("--n", String(this.width));
    this.columns = [];
    for (let place = -1; place < this.width - 1; place += 1) {
      const above = make("span", { class: "ex-cell ex-in", style: `grid-area: 1 / ${place + 2}` });
      const below = make("span", { class: "ex-cell ex-out", style: `grid-area: 2 / ${place + 2}` });
      this.grid.append(above, below);
      this.columns.push({ place, above, below });
    }
  }

  /**
   * @param {number} count
   * @param {boolean} isFed
   */
  show(count, isFed) {
    const state = momentOf(this.run, count, isFed);
    for (const column of this.columns) this.drawColumn(column, state);
    const { now } = state;
    const isDone = state.isOver && state.isRead;
    put(
      this.count,
      `pass ${now ? now.index + 1 : 0} of ${this.run.forwards.length} · ${counted(state.tokens, "token")} written · ${counted(state.fed, "slot")} computed${isDone ? " · done" : ""}`,
    );
    this.drawBar(now);
    this.follow(state);
    return state;
  }

  /**
   * @param {{ place: number, above: HTMLElement, below: HTMLElement }} column
   * @param {SlotMoment} moment
   */
  drawColumn({ place, above, below }, { now, isRead }) {
    const slot = now && now.fed[place - now.first];
    const kind = slot ? slot.kind : now && place < now.first ? "final" : "ahead";
    const id = slot ? slot.id : place < 0 ? lastOf(headerOf(this.run.lane).prompt_ids) : this.run.emitted[place];
    above.className = `ex-cell ex-in ex-${kind}`;
    put(above, kind === "mask" ? "M" : kind === "ahead" ? "" : this.name(place, id));
    above.title = NAMES[kind];
    const guess = isRead && now && now.predicted[place - now.start];
    const fill =
      guess && ["accepted", "agreed", "replaced"].includes(guess.fate)
        ? ` ex-n${Math.min(now.accepted.length, 5)}`
        : "";
    below.className = `ex-cell ex-out ${guess ? `ex-${guess.fate}${fill}` : "ex-empty"}`;
    put(below, guess ? this.run.lane.tokenName(guess.id) : "");
    below.dataset.mark = guess ? MARKS[guess.fate] : "";
    below.title = guess ? `${TITLES[guess.fate] ?? guess.fate}, confidence ${probability(guess.confidence)}` : "";
  }

  /**
   * @param {number} place
   * @param {number | null} id
   */
  name(place, id) {
    const isKnown = id !== null && this.run.lane.vocabulary.has(id);
    return isKnown ? this.run.lane.tokenName(id) : place < 0 ? "…" : `#${id}`;
  }

  /** @param {SlotForward | undefined} now */
  drawBar(now) {
    const spans = now ? [now.first + 1, now.numPending, now.numFed - now.numPending] : [0, 0, 0];
    this.parts.forEach((part, i) => {
      part.style.width = `${(100 * spans[i]) / this.width}%`;
    });
  }

  /**
   * Scrolls to the input of the pass. If there is no space for input and predictions, scrolls to the predictions once
   * the output is read.
   * @param {{ now: SlotForward | undefined, isRead: boolean }} given
   */
  follow({ now, isRead }) {
    if (!now) return;
    const cell = this.columns[1].above.offsetLeft - this.columns[0].above.offsetLeft;
    const isTight = (now.numFed + 3) * cell > this.strip.clientWidth;
    const place = isRead && isTight ? now.start - 2 : now.first - 1;
    this.strip.scrollLeft = this.columns[Math.max(0, place + 1)].above.offsetLeft - 2;
  }
}

export class SlotPlayer {
  /** @type {number | null} */
  timer;

  /**
   * @param {HTMLElement} element
   * @param {SlotRun[]} runs
   * @param {(states: SlotMoment[], runs: SlotRun[]) => string} words
   */
  constructor(element, runs, words) {
    this.runs = runs;
    this.mismatches = runs[0].forwards.filter((f) => f.stop === "mismatch");
    this.words = words;
    this.moment = 0;
    this.last = 2 * Math.max(...runs.map((run) => run.forwards.length));
    this.lanes = runs.map((run) => new SlotLane(run));
    this.said = make("p", { class: "ex-said", "aria-live": "polite" });
    this.button = button({ class: "ex-play", "aria-label": "Play" }, "Play", () => this.toggle());
    this.range = make("input", { type: "range", min: 0, max: this.last, step: 1, "aria-label": "Position in the run" });
    this.range.addEventListener("input", () => this.seek(Number(this.range.value)));
    const lanes = this.lanes.map((lane) => lane.element);
    element.append(this.controls(), this.said, ...lanes, keyList(legendOf(runs)));
    element.addEventListener("keydown", (event) => this.key(event));
    this.show(1);
  }

  controls() {
    const box = make(
      "div",
      "ex-controls",
      button({ "aria-label": "Step back" }, "‹", () => this.seek(this.moment - 1)),
      this.button,
      button({ "aria-label": "Step forward" }, "›", () => this.seek(this.moment + 1)),
      this.range,
    );
    const mismatch = { class: "ex-word", "aria-label": "Go to the next mismatch" };
    if (this.mismatches.length) box.append(button(mismatch, "Next mismatch", () => this.toMismatch()));
    return box;
  }

  // Moves to the next pass with a mismatch, at the moment when the pass's input is fed. After the last such pass, moves
  // to the first one.
  toMismatch() {
    const from = Math.floor((this.moment + 1) / 2);
    const { index } = this.mismatches.find((forward) => forward.index >= from) ?? this.mismatches[0];
    this.seek(2 * index + 1);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const isButton = targetOf(event).tagName === "BUTTON";
    if (event.target === this.range || isModified(event)) return;
    /** @type {Record<string, () => void>} */
    const acts = {
      ArrowRight: () => this.seek(this.moment + 1),
      ArrowLeft: () => this.seek(this.moment - 1),
      Home: () => this.seek(0),
      End: () => this.seek(this.last),
    };
    if (!isButton) acts[" "] = () => this.toggle();
    if (!acts[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  }

  /** @param {number} moment */
  seek(moment) {
    this.pause();
    this.show(Math.max(0, Math.min(this.last, moment)));
  }

  // Plays or pauses. If the system asks for reduced motion, makes one step instead.
  toggle() {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) this.seek(this.moment + 1);
    else if (this.timer) this.pause();
    else this.play();
  }

  play() {
    if (this.moment >= this.last) this.show(0);
    this.pause();
    this.timer = setInterval(() => {
      if (this.moment >= this.last || !this.range.isConnected) this.pause();
      else this.show(this.moment + 1);
    }, 900);
    this.labelButton();
  }

  pause() {
    clearInterval(this.timer ?? undefined);
    this.timer = null;
    this.labelButton();
  }

  labelButton() {
    const word = this.timer ? "Pause" : "Play";
    put(this.button, word);
    attribute(this.button, { "aria-label": word });
  }

  /**
   * Shows a moment of the run. At moment 2k, the output of pass k has been read. At moment 2k + 1, the input of pass k
   * + 1 is fed, but its output is not read yet.
   * @param {number} moment
   */
  show(moment) {
    this.moment = moment;
    const isFed = moment % 2 === 1;
    const states = this.lanes.map((lane) => lane.show(Math.floor(moment / 2), isFed));
    this.range.value = String(moment);
    this.range.setAttribute("aria-valuetext", `pass ${Math.ceil(moment / 2)}`);
    put(this.said, this.words(states, this.runs));
  }
}

// How the picture marks a proposal, by the proposal's fate in folds/proposals.js. accepted: emitted by this pass.
// agreed: a draft that AR confirmed. replaced: AR's token instead of a wrong draft. draft: to be verified by the next
// pass. dropped: after a wrong draft. refused: below the threshold, or not used for another reason.
/** @type {Record<string, string>} */
const FATES = {
  own: "accepted",
  taken: "accepted",
  confirmed: "agreed",
  replaced: "replaced",
  drafted: "draft",
  dropped: "dropped",
  refused: "refused",
  unseen: "refused",
  outbid: "refused",
  past: "refused",
};

/**
 * Returns a recorded run for the picture. lines: the lines of its trace, which begin with the header.
 * @param {string} title
 * @param {string[]} lines
 */
export function slotRun(title, lines) {
  const lane = Lane.of(lines, { lane: "recorded", title });
  const forwards = lane.steps.map((step) => readForward(lane, step));
  return { title, lane, forwards, emitted: lane.ids };
}

/**
 * @param {Lane} lane
 * @param {Step} step
 */
function readForward(lane, step) {
  const prompt = promptTokens(lane);
  // If there are several groups of masks, only the last group is drawn, which follows all pending tokens.
  const numDrawn = step.groups.length ? step.pending + lastOf(step.groups) : step.fed;
  const fed = slotsAt(lane, step.index, 0)
    .slice(0, numDrawn)
    .map(({ slot, state, id }) => ({ place: slot - prompt, kind: state, id }));
  const predicted = proposalRows(lane, step.index).map((row) => ({ ...row, fate: FATES[row.fate] }));
  return {
    index: step.index,
    first: step.cursor - prompt,
    start: step.first,
    numPending: step.pending,
    numFed: step.fed,
    fed,
    predicted,
    accepted: lane.tokens.slice(step.first, step.first + step.count).map((token) => token.id),
    drafted: draftIds(step).length,
    stop: step.stop,
    isCommit: step.isCommit,
    tau: step.settings.tau,
    isLossless: step.settings.lossless,
  };
}

/**
 * Returns the state of a run after its first `count` passes. isFed: the input of the next pass is already fed.
 * @param {SlotRun} run
 * @param {number} count
 * @param {boolean} isFed
 */
export function momentOf(run, count, isFed) {
  const before = run.forwards[Math.min(count, run.forwards.length) - 1];
  const tokens = before ? before.start + before.accepted.length : 0;
  const fed = run.forwards.slice(0, count).reduce((sum, f) => sum + f.numFed, 0);
  const next = isFed ? run.forwards[count] : undefined;
  return {
    now: next || before,
    isRead: !next,
    tokens,
    fed: fed + (next ? next.numFed : 0),
    isOver: count >= run.forwards.length,
  };
}

/** @param {SlotRun[]} runs */
function legendOf(runs) {
  const isLossless = runs[0].forwards[0].isLossless;
  const entries = [
    ["final", "keys and values final"],
    ["pending", "accepted, fed again as a real token"],
    ["mask", "mask, overwritten by the next pass"],
  ];
  if (isLossless)
    entries.push(
      ["draft", "draft, not emitted yet"],
      ["agreed ex-n3", "AR agrees ✓"],
      ["replaced ex-n3", "replaced by AR's token ↺"],
      ["dropped", "dropped ✗"],
    );
  else entries.push(["accepted ex-n3", "accepted ✓"], ["refused", "rejected, below τ ✗"]);
  return entries;
}

/**
 * Describes the current pass of the run with the cursor cache, and the pass that the run with the block cache makes at
 * the same moment.
 * @param {SlotMoment[]} states
 * @param {SlotRun[]} runs
 */
export function cacheWords(states, runs) {
  const [cursor, block] = states;
  const parts = [];
  if (!cursor.now) return "Nothing has been fed yet. The prompt is in the cache, except for its last token.";
  const { now } = cursor;
  if (cursor.isOver) parts.push(`Cursor: done in ${runs[0].forwards.length} passes.`);
  else if (!cursor.isRead)
    parts.push(
      `Cursor: pass ${now.index + 1} feeds ${counted(now.numPending, "real token")} and ${counted(now.numFed - now.numPending, "mask")}.`,
    );
  else parts.push(`Cursor: ${took(now)}.`);
  if (block && block.now) {
    const b = block.now;
    if (block.isOver) parts.push(`Block cache: done in ${runs[1].forwards.length} passes.`);
    else if (b.isCommit)
      parts.push(
        `Block cache: this pass only commits ${b.index ? `the ${b.numFed} tokens of the full block` : "the prompt's last token"}, and predicts one token.`,
      );
    else if (!block.isRead) parts.push(`Block cache: feeds all ${b.numFed} slots of its block again.`);
    else parts.push(`Block cache: ${took(b)}.`);
  }
  return parts.join(" ");
}

/** @param {SlotForward} f */
const took = (f) => {
  const k = f.accepted.length;
  const reason = f.stop === "threshold" ? `; the next is below τ ${short(f.tau)}` : "";
  return `${k} of ${counted(f.predicted.length, "proposal")} accepted${reason}`;
};

/** @param {{ accepted: number[] }} given */
const outputText = ({ accepted }) =>
  `${counted(accepted.length, "token")} ${accepted.length === 1 ? "is" : "are"} output`;

/**
 * Describes the current pass of a lossless run: its input, the drafts that AR confirmed, and AR's correction.
 * @param {SlotMoment[]} states
 */
export function losslessWords([state]) {
  const { now } = state;
  if (!now) return "Nothing has been fed yet.";
  const drafts = now.fed.filter((slot) => slot.kind === "draft").length;
  const masks = now.numFed - now.numPending;
  if (!state.isRead) {
    return `Pass ${now.index + 1} feeds ${drafts ? `${counted(drafts, "draft")} as real tokens to verify` : "no drafts to verify"}, and ${counted(masks, "mask")} to draft further tokens.`;
  }
  const agreed = now.predicted.filter((p) => p.fate === "agreed").length;
  if (now.stop === "mismatch") {
    return `AR agrees with ${agreed} of ${counted(drafts, "draft")} and disagrees with the next: AR's own token is used ↺ and the rest is dropped. ${outputText(now)}.`;
  }
  const checked = drafts
    ? `AR agrees with ${drafts === 1 ? "the draft" : `all ${drafts} drafts`}`
    : "Nothing to verify";
  const more = now.drafted
    ? `; ${now.drafted === 1 ? "1 new draft waits" : `${now.drafted} new drafts wait`} for the next pass`
    : "";
  return `${checked}: ${outputText(now)}${more}.`;
}
