// The conversation: the list of its turns and the field for a follow-up, below the answers of the race view. The page's
// prompt box starts a new conversation. It is stored only in the browser tab, where it survives a reload. The server
// checks whether it fits the model's context.

import { withoutBidi } from "../../core/bytes.js";
import { button, find, make, promptBox, whenThere } from "../../core/dom.js";
import { isFirst } from "../../core/folds.js";
import { store, storedBeforeReload } from "../../core/storage.js";
import { figure } from "../../core/words.js";
import { valueOf } from "../../core/wire.js";
import { answerOf, historyOf, isExpected, isForeign, readTurns, written } from "./turns.js";

const KEY = "mars-conversation";

/** @type {ConversationView | null} */
let current = null;

const race = () => document.querySelector("#race .mars-race")?.lineView;
const box = () => promptBox()?.value ?? "";

class ConversationView {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.checkpoint = ""; // the selected one; "" if it cannot have conversations
    /** @type {Turn[]} */
    this.turns = readTurns(storedBeforeReload(KEY));
    this.isFollowUp = false; // whether the next press of Run sends the follow-up
    /** @type {{ at: number, prompt: string, before: string } | null} */
    this.expected = null; // the turn to add when the requested run begins, and the run that was displayed before
    /** @type {Run | null} */
    this.run = null; // the run of the last turn while it is in progress
    this.before = this.turns[0]?.prompt ?? ""; // text of the prompt box when the latest turn began
    this.list = find(root, ".ct-turns");
    this.field = /** @type {HTMLTextAreaElement} */ (find(root, "textarea"));
    this.form = find(root, ".ct-ask");
    this.form.addEventListener("submit", (event) => this.send(event));
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.send(event);
    });
    whenThere(race, ({ root: view }) => {
      view.querySelector(".rv-follow")?.append(this.root);
      const attributeFilter = ["data-run", "data-state"];
      new MutationObserver(() => this.followRun()).observe(view, { attributes: true, attributeFilter });
    });
    window.addEventListener("pagehide", () => {
      this.keepAnswer();
      store("sessionStorage", KEY, written(this.checkpoint ? this.turns : []));
    });
  }

  // The turn of the displayed run.
  get shown() {
    return this.turns.find((turn) => turn.run === race()?.run?.id) || null;
  }

  get isForeign() {
    return isForeign(race()?.run || null, this.turns, this.expected);
  }

  /** @param {string} checkpoint */
  hold(checkpoint) {
    this.checkpoint = checkpoint;
    this.draw();
  }

  // Called when the race view displays another run, or the run has changed its state.
  followRun() {
    const run = race()?.run || null;
    const { expected } = this;
    if (run && expected && isExpected(run, expected)) {
      this.keepAnswer();
      this.turns.splice(expected.at, Infinity, { prompt: expected.prompt, run: run.id, value: "", answer: null });
      if (this.field.value === expected.prompt) this.field.value = "";
      Object.assign(this, { expected: null, run, before: box() });
      const panes = race()?.root.querySelector(".rv-panes");
      if (panes && panes.getBoundingClientRect().top < 0) race()?.root.scrollIntoView({ block: "start" });
    }
    if (this.run && (this.run !== run || this.run.lanes.every((lane) => lane.end))) {
      this.keepAnswer();
      this.run = null;
    }
    this.draw();
  }

  // Stores what the run in progress has written so far, from which the next turn continues.
  keepAnswer() {
    const { run } = this;
    const turn = this.turns.find((kept) => kept.run === run?.id);
    if (!run || !turn) return;
    turn.answer = answerOf(run.lanes.filter((lane) => lane.header && !isFirst(lane)));
    turn.value = valueOf({ ...run.head, from: 0 }, run.lanes);
  }

  /**
   * Returns the control values that Run sends, which include the turn's prompt and the earlier turns.
   * @param {string[]} names
   * @param {unknown[]} values
   */
  runValues(names, values) {
    const of = Object.fromEntries(names.map((name, i) => [name, values[i]]));
    this.keepAnswer();
    const canFollow = this.checkpoint && this.turns.at(-1)?.answer?.checkpoint === of.checkpoint;
    const at = this.isFollowUp && canFollow ? this.turns.length : 0;
    const prompt = this.isFollowUp ? this.field.value : String(of.prompt ?? "");
    this.isFollowUp = false;
    this.expected = { at, prompt, before: race()?.run?.id || "" };
    const history = JSON.stringify(historyOf(this.turns.slice(0, at)));
    return names.map((name) => ({ ...of, prompt, history })[name]);
  }

  /** @param {Event} event */
  send(event) {
    event.preventDefault();
    if (!this.field.value.trim()) return;
    this.isFollowUp = true;
    document.getElementById("run")?.click();
  }

  draw() {
    const { turns, shown: visible } = this;
    this.root.hidden = !this.checkpoint || !turns.length;
    this.form.hidden = this.isForeign;
    const wanted = wantedOf(box());
    if (turns.length && race()?.wanted !== wanted) race()?.want(wanted); // only a change, because it redraws the view
    const at = [...this.list.children].findIndex((row) => row.contains(document.activeElement));
    this.list.hidden = turns.length === 1 && visible !== null; // the displayed one
    this.list.replaceChildren(...turns.map((turn) => this.row(turn, turn === visible)));
    if (at >= 0) this.list.querySelectorAll("button")[at]?.focus({ preventScroll: true });
  }

  /**
   * @param {Turn} turn
   * @param {boolean} isShown
   */
  row(turn, isShown) {
    const { prompt, answer, value } = turn;
    const node = button({ class: "ct-turn", "aria-current": isShown }, [
      make("span", { class: "ct-question", dir: "auto" }, withoutBidi(prompt)),
      make("span", { class: "ct-answer", dir: "auto" }, withoutBidi(answer?.text ?? "").trim() || "…"),
      make("span", "ct-figure rv-num", answer?.perForward ? `${figure(answer.perForward)} tokens per pass` : ""),
    ], () => void (isShown || race()?.read(value))); // prettier-ignore
    node.title = "Show this answer above";
    node.disabled = !value || Boolean(this.run);
    return make("li", "", node);
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
export const runValues = (names, values) => (current ? current.runValues(names, values) : values);

/**
 * Returns the prompt that the displayed answers should belong to; null if they belong to a turn of the conversation and
 * the prompt box has not been changed since.
 * @param {string} prompt text of the prompt box
 */
export function wantedOf(prompt) {
  if (!current?.checkpoint || !current.turns.length || current.isForeign) return prompt;
  return !prompt || prompt === current.before ? null : prompt;
}

export const questionOnShow = () => current?.shown?.prompt || "";
