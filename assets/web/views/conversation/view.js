// The conversation: its turns and the box for the next question, below the answers of the race view. The page's prompt
// box starts a new conversation. The conversation is stored only in the browser tab, where it survives a reload. The
// server checks whether it fits the model's context.

import { shown } from "../../core/bytes.js";
import { attribute, button, find, make, placeIn, put, whenThere } from "../../core/dom.js";
import { headerOf, mainLane } from "../../core/folds.js";
import { counted, figure, forkText } from "../../core/words.js";
import { Tree, answerOf, historyOf, restored, roomText, storeTree, toldOf, triedIn, upTo, valueOfRun } from "./tree.js";

const RACE = "#race .mars-race";
const BOX = "#prompt textarea";
const FIRST = "Ask a question";
const FOLLOW_UP = "Ask a follow-up";
const NOTHING = "No questions yet.";

/** @type {ConversationView | null} */
let current = null;

const race = () => document.querySelector(RACE)?.lineView;
const box = () => /** @type {HTMLTextAreaElement | null} */ (document.querySelector(BOX));
/** @param {string} id */
const press = (id) => document.getElementById(id)?.click();

class ConversationView {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    /** @type {string | null} */
    this.holder = null; // checkpoint of the conversation; "" if the selected checkpoint cannot have conversations
    this.tree = restored();
    /** @type {{ parent: Turn | null, prompt?: string } | null} */
    this.wanted = null; // the turn that the next press of Run starts; null: depends on the prompt box
    this.before = ""; // text of the prompt box when the latest turn began
    /** @type {Expected | null} */
    this.expected = null; // the turn to add when the requested run begins
    /** @type {Going | null} */
    this.going = null;
    /** @type {Turn | null} */
    this.edited = null;
    /** @type {string | undefined} */
    this.key = undefined; // key of the focused element in the rows
    this.turns = find(root, ".ct-turns");
    this.ask = /** @type {HTMLTextAreaElement} */ (find(root, ".ct-ask textarea"));
    find(root, ".ct-ask").addEventListener("submit", (event) => this.send(event));
    this.ask.addEventListener("keydown", (event) => this.typed(event));
    this.tried = find(root, ".ct-tried");
    this.room = find(root, ".ct-room");
    this.lanes = /** @type {HTMLSelectElement} */ (find(root, "select"));
    this.lanes.addEventListener("change", () => this.draw());
    find(root, ".ct-new").addEventListener("click", () => this.clear());
    this.watch();
  }

  get isOwn() {
    return this.lanes.value === "own";
  }

  // The turn of the displayed run.
  get shown() {
    return this.tree.turns.find((turn) => turn.run === race()?.run?.id) || null;
  }

  /** @param {string} holder */
  hold(holder) {
    if (this.holder === "" && holder) this.tree = new Tree(); // drop runs of a checkpoint without conversations
    this.holder = holder;
    this.draw();
  }

  // Watches the attributes of the race view that tell which run it displays and how far the run is.
  watch() {
    const attributeFilter = ["data-run", "data-state"];
    const observer = new MutationObserver(() => this.followRun());
    whenThere(race, ({ root }) => {
      root.querySelector(".rv-follow")?.append(this.root);
      observer.observe(root, { attributes: true, attributeFilter });
      const { last } = this.tree;
      if (last) this.show(last);
    });
    window.addEventListener("pagehide", () => {
      this.saveProgress();
      storeTree(this.holder ? this.tree : new Tree());
    });
  }

  followRun() {
    const run = race()?.run || null;
    if (this.expected && run?.lanes.length && !run.recorded && run.id !== this.expected.before)
      this.begin(run, this.expected);
    if (this.going && (this.going.run !== run || run.lanes.every((lane) => lane.end))) this.end(this.going);
    this.draw();
  }

  /**
   * @param {Run} run
   * @param {Expected} expected
   */
  begin(run, { parent, prompt, fork }) {
    const before = this.going;
    this.expected = null;
    this.edited = null;
    this.going = { turn: this.tree.add(parent, prompt, run.id, fork), run };
    if (before) this.end(before);
    this.before = box()?.value ?? "";
    if (this.ask.value === prompt) this.ask.value = "";
    showAnswer();
  }

  // Stores the text that the current run has written so far, from which the next question continues.
  saveProgress() {
    const { turn, run } = this.going || {};
    if (turn && !turn.next && run?.lanes.some((lane) => lane.header)) turn.told = toldOf(run);
  }

  /** @param {Going} given */
  end({ turn, run }) {
    if (this.going?.turn === turn) this.going = null;
    if (run.lanes.some((lane) => lane.header)) {
      if (!turn.next) turn.told = toldOf(run);
      turn.isOver = true;
      turn.value = valueOfRun(run);
      return;
    }
    this.tree.remove(turn);
    if (turn.parent) this.ask.value ||= turn.prompt;
  }

  /**
   * Begins a turn and returns the control values that Run sends, which include the turn's prompt and the earlier turns.
   * @param {string[]} names
   * @param {unknown[]} values
   */
  turn(names, values) {
    const of = Object.fromEntries(names.map((name, i) => [name, values[i]]));
    const typed = String(of.prompt || "").trim() ? String(of.prompt) : "";
    const again = typed || !this.holder ? null : this.shown;
    const wanted = this.wanted || { parent: again?.parent ?? null, prompt: again?.prompt };
    this.wanted = null;
    this.saveProgress();
    const isHeld = Boolean(this.holder) && of.checkpoint === this.holder;
    const parent = isHeld && wanted.parent?.told?.checkpoint === of.checkpoint ? wanted.parent : null;
    const prompt = wanted.prompt ?? typed;
    this.expected = { parent, prompt, before: race()?.run?.id || "" };
    const history = JSON.stringify(historyOf(upTo(parent), this.isOwn));
    return names.map((name) => ({ ...of, prompt, history })[name]);
  }

  /**
   * Prepares the turn of a run that a view starts: a repeated run or a branch from a token. The new turn becomes a
   * sibling of the original run's turn. If the original run has no turn (for example, because it is a recording), a
   * turn is first added for it.
   * @param {Run} run
   * @param {ForkPlace | null} fork
   */
  branch(run, fork) {
    const of = this.tree.turns.find((turn) => turn.run === run.id) || (fork && this.adopt(run));
    if (!of) this.expected = null;
    else {
      const { parent, prompt } = of;
      this.expected = { parent, prompt, before: run.id, fork: fork && { ...fork, of } };
    }
  }

  /** @param {Run} run */
  adopt(run) {
    const turn = this.tree.add(null, headerOf(mainLane(run)).prompt, run.id);
    return Object.assign(turn, { isOver: true, told: toldOf(run), value: valueOfRun(run) });
  }

  /**
   * @param {Turn | null} parent
   * @param {string} [prompt] the question, if it differs from the text of the prompt box
   */
  run(parent, prompt) {
    this.wanted = { parent, prompt };
    press("run");
  }

  /** @param {Event} event */
  send(event) {
    event.preventDefault();
    if (this.ask.value.trim()) this.run(this.tree.last, this.ask.value);
  }

  /**
   * Sends the question when Enter is pressed; Shift+Enter starts a new line.
   * @param {KeyboardEvent} event
   */
  typed(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.send(event);
  }

  /** @param {Turn} turn */
  show(turn) {
    this.tree.choose(turn);
    this.edited = null;
    if (turn.value && turn !== this.shown) race()?.read(turn.value);
    this.draw();
  }

  /** @param {Turn | null} turn */
  edit(turn) {
    this.edited = turn;
    this.turns.replaceChildren(); // drops unsaved changes to another turn
    this.draw();
    this.turns.querySelector("textarea")?.focus();
  }

  clear() {
    if (this.going) press("stop");
    this.tree = new Tree();
    this.going = null;
    this.expected = null;
    this.edited = null;
    race()?.read("");
    this.draw();
    this.ask.focus();
  }

  draw() {
    const { path } = this.tree;
    this.drawTried();
    this.root.dataset.holds = String(Boolean(this.holder));
    this.root.hidden = !this.holder && this.tried.hidden;
    if (!this.holder) return;
    this.root.dataset.turns = String(path.length);
    this.ask.placeholder = path.length ? FOLLOW_UP : FIRST;
    const wanted = wantedOf(box()?.value ?? "");
    if (path.length && race()?.wanted !== wanted) race()?.want(wanted); // only if it changed, because this redraws the view and so triggers this method
    this.rememberKey();
    const { shown, isOwn, edited } = this;
    const isBusy = Boolean(this.going);
    /** @type {TurnActions} */
    const act = {
      show: (wanted) => this.show(wanted),
      edit: (wanted) => this.edit(wanted),
      again: (wanted) => this.run(wanted.parent, wanted.prompt),
      send: (wanted, prompt) => this.run(wanted.parent, prompt),
    };
    const rows = path.map((turn, i) => {
      const siblings = this.tree.siblings(turn);
      const state = { isShown: turn === shown, isEdited: turn === edited, isBusy, isOwn, siblings };
      return new TurnRow(turn, i + 1, state, act).element;
    });
    const draft = this.turns.querySelector("textarea")?.value;
    this.turns.replaceChildren(...(rows.length ? rows : [make("li", "ct-none", NOTHING)]));
    const editor = this.turns.querySelector("textarea");
    if (editor && draft !== undefined) editor.value = draft;
    put(this.room, roomText(path.at(-1)?.told || null));
    this.room.dataset.full = String(this.room.textContent?.startsWith("Nearly"));
    const keyed = /** @type {NodeListOf<HTMLElement>} */ (this.turns.querySelectorAll("[data-key]"));
    [...keyed].find(({ dataset }) => dataset.key === this.key)?.focus({ preventScroll: true });
    const row = shown && rows[path.indexOf(shown)];
    if (row) this.turns.scrollTop = placeIn(this.turns, row) - this.turns.clientHeight / 2;
  }

  // Lists the runs of the displayed turn's question below the turns. Pressing a run shows it.
  drawTried() {
    const { shown } = this;
    const trees = shown ? triedIn(this.tree.siblings(shown), shown) : [];
    this.tried.hidden = !trees.length;
    const state = [this.going?.turn.run, shown?.run, ...this.tree.turns.map(({ run, isOver }) => `${run}${isOver}`)];
    if (state.join() === this.triedState) return;
    this.triedState = state.join();
    /** @type {(tried: Tried) => HTMLElement} */
    const item = ({ turn, branches }) =>
      make("li", "", this.triedRow(turn), ...(branches.length ? [make("ul", "", ...branches.map(item))] : []));
    find(this.tried, "ul").replaceChildren(...trees.map(item));
  }

  /** @param {Turn} turn */
  triedRow(turn) {
    const { fork, told } = turn;
    const figures = told
      ? `${loopWords(told)}${counted(told.tokens, "token")} in ${counted(told.forwards, "pass", "passes")}`
      : "running";
    const parts = [make("span", "", fork ? forkText(fork) : "original run"), make("span", "ct-figure rv-num", figures)];
    const node = button({ title: turn.value || !turn.isOver ? "Show this run above" : GONE }, parts, () =>
      this.show(turn),
    );
    node.disabled = Boolean(this.going) || !turn.value;
    if (turn === this.shown) attribute(node, { "aria-current": true });
    return node;
  }

  // Remembers which element has the focus, because the rows are rebuilt and their buttons are disabled during a run.
  rememberKey() {
    const active = /** @type {HTMLElement} */ (document.activeElement);
    if (this.turns.contains(active)) this.key = active.dataset.key;
    else if (active !== document.body) this.key = undefined;
  }
}

/**
 * @param {HTMLElement} element
 * @param {{ value: string }} props
 * @param {(name: string, changed: () => void) => void} watch
 */
export function mountConversationView(element, props, watch) {
  const view = new ConversationView(find(element, ".mars-conversation"));
  current = view;
  watch("value", () => view.hold(props.value));
  view.hold(props.value);
}

/**
 * Returns the values of the controls that Run sends; called when Run is pressed.
 * @param {string[]} names
 * @param {unknown[]} values
 */
export const turn = (names, values) => (current ? current.turn(names, values) : values);

// Starts a new conversation with the prompt box's text as its first question.
export const runFirst = () => (current ? current.run(null) : press("run"));

/** @type {(run: Run, fork: ForkPlace | null) => void} */
export const branch = (run, fork) => current?.branch(run, fork);

/**
 * Returns the prompt that the displayed answers should belong to; null if they belong to a question of the conversation
 * and the prompt box has not been changed since.
 * @param {string} prompt text of the prompt box
 */
export function wantedOf(prompt) {
  const path = current?.holder ? current.tree.path : [];
  const isOld = !prompt || prompt === current?.before || path.some((turn) => turn.prompt === prompt);
  return path.length && isOld ? null : prompt;
}

export const questionOnShow = () => current?.shown?.prompt || "";

// Scrolls to the answer if its top is above the window, as after typing a follow-up question below it.
function showAnswer() {
  const root = race()?.root;
  if (root && find(root, ".rv-panes").getBoundingClientRect().top < 0) root.scrollIntoView({ block: "start" });
}

const GONE = "This run is no longer stored; it is still part of the conversation.";

// The row of a turn: its question and answer, or an editor for the question.
class TurnRow {
  /**
   * @param {Turn} turn
   * @param {number} number from 1
   * @param {TurnState} state
   * @param {TurnActions} act
   */
  constructor(turn, number, state, act) {
    this.turn = turn;
    this.number = number;
    this.state = state;
    this.act = act;
    const parts = state.isEdited ? [this.editor()] : [this.shower(), this.side()];
    this.element = make("li", "ct-turn", ...parts);
    if (state.isShown) attribute(this.element, { "aria-current": true });
  }

  /**
   * @param {string} key identifies the button after the rows were rebuilt, so that the focus can be restored
   * @param {string} text
   * @param {string} label
   * @param {() => void} pressed
   * @param {boolean} [isOff]
   */
  button(key, text, label, pressed, isOff = false) {
    const attributes = { title: label, "data-key": `${key} ${this.number}`, "aria-label": label };
    const node = button(attributes, text, pressed);
    node.disabled = isOff;
    return node;
  }

  // Builds the question with its answer as a button that shows the run.
  shower() {
    const { turn, number, act } = this;
    const { isOwn, isBusy, isShown } = this.state;
    const title = turn.isOver && !turn.value ? GONE : isShown ? "This turn is shown above" : "Show this turn above";
    const answer = turn.told ? answerOf(turn.told, isOwn) : "";
    const parts = [
      make("span", { class: "ct-question", dir: "auto" }, shown(turn.prompt)),
      make(
        "span",
        { class: "ct-answer", dir: "auto" },
        shown(answer).trim() || (turn.isOver ? "(empty answer)" : "Writing…"),
      ),
    ];
    const node = button({ class: "ct-show", "data-key": `show ${number}`, title }, parts, () => act.show(turn));
    node.disabled = isBusy || !turn.value;
    return node;
  }

  side() {
    const { turn, number, act } = this;
    const { siblings, isBusy, isOwn } = this.state;
    const told = turn.isOver ? turn.told : null;
    const perForward =
      told && Number.isFinite(told.perForward) ? `${loopWords(told)}${figure(told.perForward)} tokens per pass` : "";
    const again = `Answer question ${number} again with the current settings; the existing answer is kept`;
    return make(
      "div",
      "ct-side rv-num",
      make("span", "ct-figure", perForward),
      ...(told?.differs && !isOwn ? [make("span", "ct-differs", "MARS wrote another answer")] : []),
      ...(siblings.length > 1 ? [this.branches()] : []),
      this.button("edit", "Edit", `Edit question ${number} and send it again`, () => act.edit(turn), isBusy),
      this.button("again", "Again", again, () => act.again(turn), isBusy),
    );
  }

  branches() {
    const { turn, number, act } = this;
    const { siblings, isBusy } = this.state;
    const at = siblings.indexOf(turn);
    /** @type {(text: string, label: string, to: number) => HTMLElement} */
    const step = (text, label, to) => {
      const show = () => act.show(siblings[to]);
      return this.button(text, text, `${label} of question ${number}`, show, isBusy || !siblings[to]?.value);
    };
    const title = `${counted(siblings.length, "version")} of this turn`;
    return make(
      "span",
      "ct-branches",
      step("‹", "Previous version", at - 1),
      make("span", { title }, `${at + 1} of ${siblings.length}`),
      step("›", "Next version", at + 1),
    );
  }

  editor() {
    const { turn, number, act } = this;
    const field = make("textarea", { rows: 3, "data-key": `box ${number}`, "aria-label": `Question ${number}` });
    field.value = turn.prompt;
    const send = () => void (field.value.trim() && act.send(turn, field.value));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") act.edit(null);
      else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
      else return;
      event.preventDefault(); // otherwise Escape would also stop the run
    });
    const buttons = [
      this.button("send", "Send", `Send the edited question ${number}; the old version is kept`, send),
      this.button("cancel", "Cancel", "Keep the question unchanged", () => act.edit(null)),
    ];
    return make("div", "ct-editor", field, make("div", "ct-side", ...buttons));
  }
}

/**
 * Returns the beginning of an answer's figures: where its text repeats itself, or "".
 * @param {Told} told
 */
const loopWords = ({ loop }) => (loop ? `${loop}. Up to that point: ` : "");
