// The conversation: a list of turns and the box for the next question, below the answers of the race view. The page's
// prompt box starts a new conversation, and a question that is sent again replaces its turn and those after it. The conversation is stored only in the browser tab, where it survives a reload. The
// server checks whether it fits the model's context.

import { shown } from "../../core/bytes.js";
import { attribute, button, find, make, placeIn, put, whenThere } from "../../core/dom.js";
import { headerOf, mainLane } from "../../core/folds.js";
import { figure } from "../../core/words.js";
import { answerOf, historyOf, restored, roomText, storeTurns, toldOf, valueOfRun } from "./turns.js";

const RACE = "#race .mars-race";
const BOX = "#prompt textarea";
const FIRST = "Ask a question";
const FOLLOW_UP = "Ask a follow-up";
const NOTHING = "No questions yet.";
const MOST_KEPT = 60; // maximum number of runs that can be displayed again

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
    /** @type {Turn[]} */
    this.turns = restored();
    /** @type {{ at: number, prompt?: string } | null} */
    this.wanted = null; // the turn that the next press of Run starts, and its index; null: depends on the prompt box
    this.before = ""; // text of the prompt box when the latest turn began
    /** @type {Expected | null} */
    this.expected = null; // the turn to add when the requested run begins
    /** @type {Going | null} */
    this.going = null;
    /** @type {Turn | null} */
    this.edited = null;
    /** @type {string | undefined} */
    this.key = undefined; // key of the focused element in the rows
    this.list = find(root, ".ct-turns");
    this.ask = /** @type {HTMLTextAreaElement} */ (find(root, ".ct-ask textarea"));
    find(root, ".ct-ask").addEventListener("submit", (event) => this.send(event));
    this.ask.addEventListener("keydown", (event) => this.typed(event));
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
    return this.turns.find((turn) => turn.run === race()?.run?.id) || null;
  }

  /** @param {string} holder */
  hold(holder) {
    if (this.holder === "" && holder) this.turns = []; // drop runs of a checkpoint without conversations
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
      const last = this.turns.at(-1);
      if (last) this.show(last);
    });
    window.addEventListener("pagehide", () => {
      this.saveProgress();
      storeTurns(this.holder ? this.turns : []);
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
  begin(run, { at, prompt }) {
    const before = this.going;
    this.expected = null;
    this.edited = null;
    /** @type {Turn} */
    const turn = { prompt, run: run.id, isOver: false, value: "", told: null };
    this.going = { turn, run, replaced: this.turns.splice(at, Infinity, turn) };
    for (const old of this.turns.filter(({ value }) => value).slice(0, -MOST_KEPT)) old.value = "";
    if (before) this.end(before);
    this.before = box()?.value ?? "";
    if (this.ask.value === prompt) this.ask.value = "";
    showAnswer();
  }

  // Stores the text that the current run has written so far, from which the next question continues.
  saveProgress() {
    const { turn, run } = this.going || {};
    if (turn && turn === this.turns.at(-1) && run?.lanes.some((lane) => lane.header)) turn.told = toldOf(run);
  }

  /**
   * Stores the answer of a run that has ended. Without an answer, removes the turn and restores the turns that it
   * replaced.
   * @param {Going} given
   */
  end({ turn, run, replaced }) {
    if (this.going?.turn === turn) this.going = null;
    const at = this.turns.indexOf(turn);
    const isLast = at === this.turns.length - 1;
    if (run.lanes.some((lane) => lane.header)) {
      if (isLast) turn.told = toldOf(run);
      turn.isOver = true;
      turn.value = valueOfRun(run);
    } else if (at >= 0) {
      this.turns.splice(at, 1, ...(isLast ? replaced : []));
      if (at) this.ask.value ||= turn.prompt;
    }
  }

  /**
   * Begins a turn and returns the control values that Run sends, which include the turn's prompt and the earlier turns.
   * @param {string[]} names
   * @param {unknown[]} values
   */
  turn(names, values) {
    const of = Object.fromEntries(names.map((name, i) => [name, values[i]]));
    const typed = String(of.prompt || "").trim() ? String(of.prompt) : "";
    const again = typed || !this.holder ? undefined : this.shown;
    const wanted = this.wanted || { at: again ? this.turns.indexOf(again) : 0, prompt: again?.prompt };
    this.wanted = null;
    this.saveProgress();
    const isHeld = Boolean(this.holder) && of.checkpoint === this.holder;
    const at = isHeld && this.turns[wanted.at - 1]?.told?.checkpoint === of.checkpoint ? wanted.at : 0;
    const prompt = wanted.prompt ?? typed;
    this.expected = { at, prompt, before: race()?.run?.id || "" };
    const history = JSON.stringify(historyOf(this.turns.slice(0, at), this.isOwn));
    return names.map((name) => ({ ...of, prompt, history })[name]);
  }

  /**
   * Prepares the turn of a run that a view starts: a repeated run or a branch from a token. The new run replaces the
   * turn of the original run and those after it. A branch of a run without a turn, such as a recording, starts a new
   * conversation.
   * @param {Run} run
   * @param {boolean} isBranch
   */
  branch(run, isBranch) {
    const at = this.turns.findIndex((turn) => turn.run === run.id);
    const prompt = at < 0 ? headerOf(mainLane(run)).prompt : this.turns[at].prompt;
    this.expected = at < 0 && !isBranch ? null : { at: Math.max(0, at), prompt, before: run.id };
  }

  /**
   * @param {number} at number of turns before the new one
   * @param {string} [prompt] the question, if it differs from the text of the prompt box
   */
  run(at, prompt) {
    this.wanted = { at, prompt };
    press("run");
  }

  /** @param {Event} event */
  send(event) {
    event.preventDefault();
    if (this.ask.value.trim()) this.run(this.turns.length, this.ask.value);
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
    this.edited = null;
    if (turn.value && turn !== this.shown) race()?.read(turn.value);
    this.draw();
  }

  /** @param {Turn | null} turn */
  edit(turn) {
    this.edited = turn;
    this.list.replaceChildren(); // drops unsaved changes to another turn
    this.draw();
    this.list.querySelector("textarea")?.focus();
  }

  clear() {
    if (this.going) press("stop");
    this.turns = [];
    this.going = null;
    this.expected = null;
    this.edited = null;
    race()?.read("");
    this.draw();
    this.ask.focus();
  }

  draw() {
    const { turns, list } = this;
    this.root.hidden = !this.holder;
    if (!this.holder) return;
    this.root.dataset.turns = String(turns.length);
    this.ask.placeholder = turns.length ? FOLLOW_UP : FIRST;
    const wanted = wantedOf(box()?.value ?? "");
    if (turns.length && race()?.wanted !== wanted) race()?.want(wanted); // only if it changed, because this redraws the view and so triggers this method
    this.rememberKey();
    const { shown, isOwn, edited } = this;
    const isBusy = Boolean(this.going);
    /** @type {TurnActions} */
    const act = {
      show: (wanted) => this.show(wanted),
      edit: (wanted) => this.edit(wanted),
      send: (wanted, prompt) => this.run(this.turns.indexOf(wanted), prompt),
    };
    const rows = turns.map((turn, i) => {
      const state = { isShown: turn === shown, isEdited: turn === edited, isBusy, isOwn };
      return new TurnRow(turn, i + 1, state, act).element;
    });
    const draft = list.querySelector("textarea")?.value;
    list.replaceChildren(...(rows.length ? rows : [make("li", "ct-none", NOTHING)]));
    const editor = list.querySelector("textarea");
    if (editor && draft !== undefined) editor.value = draft;
    put(this.room, roomText(turns.at(-1)?.told || null));
    this.room.dataset.full = String(this.room.textContent?.startsWith("Nearly"));
    const keyed = /** @type {NodeListOf<HTMLElement>} */ (list.querySelectorAll("[data-key]"));
    [...keyed].find(({ dataset }) => dataset.key === this.key)?.focus({ preventScroll: true });
    const row = shown && rows[turns.indexOf(shown)];
    if (row) list.scrollTop = placeIn(list, row) - list.clientHeight / 2;
  }

  // Remembers which element has the focus, because the rows are rebuilt and their buttons are disabled during a run.
  rememberKey() {
    const active = /** @type {HTMLElement} */ (document.activeElement);
    if (this.list.contains(active)) this.key = active.dataset.key;
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
export const runFirst = () => (current ? current.run(0) : press("run"));

/** @type {(run: Run, isBranch: boolean) => void} */
export const branch = (run, isBranch) => current?.branch(run, isBranch);

/**
 * Returns the prompt that the displayed answers should belong to; null if they belong to a question of the conversation
 * and the prompt box has not been changed since.
 * @param {string} prompt text of the prompt box
 */
export function wantedOf(prompt) {
  const turns = current?.holder ? current.turns : [];
  const isOld = !prompt || prompt === current?.before || turns.some((turn) => turn.prompt === prompt);
  return turns.length && isOld ? null : prompt;
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
    const { isBusy, isOwn } = this.state;
    const told = turn.isOver ? turn.told : null;
    const perForward =
      told && Number.isFinite(told.perForward) ? `${loopWords(told)}${figure(told.perForward)} tokens per pass` : "";
    const edit = `Edit question ${number} and send it again; this removes the turns after it`;
    return make(
      "div",
      "ct-side rv-num",
      make("span", "ct-figure", perForward),
      ...(told?.differs && !isOwn ? [make("span", "ct-differs", "MARS wrote another answer")] : []),
      this.button("edit", "Edit", edit, () => act.edit(turn), isBusy),
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
      this.button("send", "Send", `Send question ${number} and remove the turns after it`, send),
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
