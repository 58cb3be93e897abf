// The Review tab: a list of prompts with their marks, two or three answers side by side, votes and notes. The server
// parses files of prompts.

import { button, find, isModified, make, put, targetOf, toggle } from "../../core/dom.js";
import { download, textBlob } from "../../core/files.js";
import { nameOf } from "../../core/methods.js";
import { store, stored } from "../../core/storage.js";
import { REVIEW } from "../../core/table.js";
import { valueOf } from "../../core/wire.js";
import { counted, joined, verdictText } from "../../core/words.js";
import { TextPane } from "../../text/pane.js";
import { Drawer } from "../race/drawer.js";
import { Making, missingOf, setOf } from "./making.js";
import { PINNED, sets } from "./pins.js";
import { MARKS, SetError, columnsOf, firstUnlike, isMade, isReference, labelOf, laneOf, readSet, selected, setText } from "./sets.js"; // prettier-ignore
import {
  BAD,
  EQUAL,
  areSame,
  contentOf,
  keepVotes,
  mergedVotes,
  tally,
  votesCsv,
  votesJsonl,
  votesOf,
} from "./votes.js";

const STUDY = "study"; // value of the study in the list of sets
const OPENED = "mars-review-set";
const PURPOSE =
  "Read what several methods answered to the same prompts, see where they differ, vote with the keys, and save your votes as a file.";
const FORGOTTEN = "This browser stores no votes (storage is full or blocked). Save them before you close the page.";
const UNREAD = "The study could not be loaded. Check the connection and reload the page, or open a set file.";

export class ReviewView {
  /** @type {ReviewSet | null} */
  set = null;
  /** @type {ReviewItem | null} */
  item = null;
  /** @type {Record<string, Vote>} */
  votes = {};
  /** @type {Map<string, ReviewSet>} */
  known = new Map(); // sets of this browser and opened files
  /** @type {TextPane[]} */
  panes = [];
  /** @type {Focus | null} */
  selected = null; // the pass whose drawer is open
  /** @type {Run} */
  run;
  /** @type {Set<number>} */
  chosen = new Set(); // methods to show; empty for the first three
  /** @type {number[]} */
  columns = []; // methods in the order of their panes
  /** @type {Record<string, any>} */
  parts = {}; // elements of review.html
  isBlind = false;
  isByKey = false;
  isSure = false; // whether the next click deletes the set
  lane = 0; // the answer that a phone shows

  /** @param {HTMLElement} root @param {ReviewServer} server */
  constructor(root, server) {
    this.root = root;
    this.making = new Making((set, item) => this.made(set, item));
    this.server = server;
    for (const node of root.querySelectorAll("[data-part]")) this.parts[node.getAttribute("data-part") || ""] = node;
    this.drawer = new Drawer(this.parts.drawer, /** @type {any} */ (this));
    this.parts.note.maxLength = REVIEW.note;
    for (const [name, { mark, text }] of Object.entries(MARKS)) {
      this.parts.filter.append(make("option", { value: name }, `${mark} ${text}`.trim()));
      if (mark) this.parts.legend.append(make("span", "", `${mark} ${text}`));
    }
    for (const name of JSON.parse(root.dataset.checkpoints || "[]"))
      this.parts.checkpoint.append(make("option", { value: name }, name));
    this.listen();
    this.start();
  }

  listen() {
    const { root } = this;
    /** @type {Record<string, () => void>} */
    const acts = {
      open: () => this.parts.file.click(),
      csv: () => this.save("votes.csv", votesCsv, "text/csv"),
      jsonl: () => this.save("votes.jsonl", votesJsonl, "application/jsonl"),
      set: () => this.save("jsonl", setText, "application/jsonl"),
      delete: () => (this.isSure ? this.remove() : this.drawDelete(true)),
      new: () => this.showForm(this.parts.form.hidden),
      cancel: () => this.showForm(false),
      make: () => void (this.making.set ? this.making.control?.abort() : this.make()),
      begin: () => this.begin(),
      previous: () => this.move(-1),
      next: () => this.move(1),
      blind: () => this.hide(!this.isBlind),
      live: () => this.openLive(),
    };
    root.addEventListener("click", (event) => {
      const act = targetOf(event).closest("[data-act]")?.getAttribute("data-act");
      if (act !== "delete") this.drawDelete(); // any other press takes the question back
      if (!act) return;
      this.parts.menu.open = act === "delete" && !this.isSure;
      acts[act]();
    });
    this.parts.select.addEventListener("change", () => this.chooseSet(this.parts.select.value));
    this.parts.file.addEventListener("change", () => {
      const [chosen] = this.parts.file.files;
      if (chosen) this.importFile(chosen);
      this.parts.file.value = "";
    });
    for (const input of [this.parts.search, this.parts.filter]) input.addEventListener("input", () => this.filter());
    this.parts.note.addEventListener("input", () => this.vote({ note: this.parts.note.value }));
    this.parts.note.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape" && event.key !== "Enter") return;
      event.stopPropagation(); // Escape would also stop a run of Live
      this.parts.note.blur();
    });
    // The list is a single tab stop; arrow keys move in it.
    this.parts.list.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      event.preventDefault();
      this.move(event.key === "ArrowDown" ? 1 : -1);
      this.parts.list.querySelector("[aria-current]")?.focus();
    });
    this.parts.form.addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
    document.addEventListener("keydown", (event) => this.key(event));
    addEventListener("resize", () => this.fit());
    document.addEventListener("mars-pinned", ({ detail }) => {
      this.remember(detail);
      if (this.set?.id === PINNED) this.open(detail, {}, PINNED, this.item?.id);
    });
  }

  async start() {
    for (const set of await sets().all()) this.remember(set);
    const last = stored("localStorage", OPENED);
    this.remember(null);
    await this.chooseSet(this.known.has(last) ? last : STUDY);
  }

  // Adds a set to the list of sets.
  /** @param {ReviewSet | null} set */
  remember(set) {
    if (set) this.known.set(set.id, set);
    const own = [...this.known.values()].map(({ id, header }) => make("option", { value: id }, header.name || id));
    const { value } = this.parts.select;
    this.parts.select.replaceChildren(make("option", { value: STUDY }, "Study: 100 prompts"), ...own);
    if (value) this.parts.select.value = value;
  }

  /** @param {string} id */
  async chooseSet(id) {
    this.showForm(false);
    this.say("");
    store("localStorage", OPENED, id);
    const set = this.known.get(id);
    if (set) return this.open(set);
    this.root.dataset.phase = "opening";
    const isWanted = () => this.parts.select.value === STUDY;
    try {
      const { body, ok } = await fetch(this.root.dataset.study || "");
      if (!ok || !body) throw new Error("missing");
      const { set: study } = await readSet(body, ({ header, items }) => {
        if (!header || !isWanted()) return;
        if (this.set?.id === header.id) this.drawList();
        else this.open({ id: header.id, header, items }, {}, STUDY);
      });
      if (isWanted()) this.open(study, {}, STUDY, this.set?.id === study.id ? this.item?.id : "");
    } catch (error) {
      this.say(error instanceof SetError ? error.message : UNREAD);
      this.root.dataset.phase = "error";
    }
    return undefined;
  }

  // votes: from a file. value: of the set in the list of sets. at: the item to show.
  /** @type {(set: ReviewSet, votes?: Record<string, Vote>, value?: string, at?: string) => void} */
  open(set, votes = {}, value = set.id, at = "") {
    const isSame = this.set?.id === set.id;
    if (!isSame) Object.assign(this, { chosen: new Set(), lane: 0 });
    Object.assign(this, { set, votes: mergedVotes(isSame ? this.votes : votesOf(set.id), votes) });
    if (Object.keys(votes).length) this.keep();
    this.parts.select.value = value;
    this.item = set.items.find(({ id }) => id === at) ?? set.items[0] ?? null;
    this.root.dataset.set = set.id;
    this.root.dataset.phase = "ready";
    this.drawDelete();
    this.drawProgress();
    this.drawList();
    this.drawItem();
    this.fit();
  }

  // Shows a sentence: why something failed, or what was done.
  /** @type {(sentence: string, isDone?: boolean) => void} */
  say(sentence, isDone = false) {
    this.parts.said.classList.toggle("rw-fault", !isDone);
    put(this.parts.said, sentence);
  }

  // The list.

  get shown() {
    const { filter, search } = this.parts;
    return this.set ? selected(this.set.items, this.votes, filter.value, search.value) : [];
  }

  // Draws the list again, and opens its first prompt if the open one is not in it.
  filter() {
    const { shown } = this;
    this.drawList();
    if (shown.length && !(this.item && shown.includes(this.item))) this.show(shown[0]);
    else this.drawPlace();
  }

  drawPlace() {
    const { shown, item, set } = this;
    const num = set?.items.length ?? 0;
    const at = item ? shown.indexOf(item) + 1 : 0;
    put(this.parts.place, joined(`${at || "–"} of ${shown.length}`, shown.length < num && `${num} in all`));
  }

  drawList() {
    const { shown } = this;
    this.root.dataset.shown = String(shown.length);
    this.parts.list.replaceChildren(...shown.map((item) => this.row(item)));
    this.drawTally();
    if (shown.length && !(this.item && shown.includes(this.item))) find(this.parts.list, "button").tabIndex = 0;
    if (!shown.length) this.parts.list.append(make("li", "rw-none", this.set?.items.length ? "No prompt matches." : "No prompts yet. Pin a run on Live.")); // prettier-ignore
  }

  drawTally() {
    this.root.dataset.votes = String(Object.values(this.votes).filter(({ vote }) => vote).length);
    const { set, votes } = this;
    put(this.parts.tally, set && !this.hidesMethods ? tally(set.header.methods, votes, set.items) || PURPOSE : "");
  }

  /** @param {ReviewItem} item */
  row(item) {
    const vote = this.votes[item.id];
    const marks = Object.values(MARKS).filter(({ mark, is }) => mark && is(item, vote));
    const node = button(
      { "data-item": item.id, ...(item === this.item ? { "aria-current": "true" } : { tabindex: -1 }) },
      [
        make("span", "rw-id", item.id),
        make("span", { class: "rw-marks", title: marks.map(({ text }) => text).join(", ") }, marks.map(({ mark }) => mark).join(" ")), // prettier-ignore
        make("span", { class: "rw-text", dir: "auto", translate: "no" }, item.prompt.slice(0, 120)),
      ],
      () => this.show(item),
    );
    return make("li", "", node);
  }

  /** @param {ReviewItem} item */
  redraw(item) {
    const row = this.parts.list.querySelector(`[data-item="${CSS.escape(item.id)}"]`)?.parentElement;
    row?.replaceWith(this.row(item));
    this.drawTally();
  }

  /** @param {ReviewItem} item */
  show(item) {
    const before = this.item;
    this.item = item;
    if (before) this.redraw(before);
    this.redraw(item);
    this.drawItem();
    this.parts.list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  /** @param {number} by */
  move(by) {
    const { set, item, shown } = this;
    if (!set || !item) return;
    const ahead = (/** @type {ReviewItem} */ other) => by * (set.items.indexOf(other) - set.items.indexOf(item)) > 0;
    const next = by > 0 ? shown.find(ahead) : shown.findLast(ahead);
    if (next) this.show(next);
  }

  // The displayed item.

  /** @param {boolean} isBlind */
  hide(isBlind) {
    this.isBlind = isBlind;
    find(this.root, "[data-act=blind]").setAttribute("aria-pressed", String(isBlind));
    this.drawItem();
  }

  get hidesMethods() {
    return this.isBlind && Boolean(this.item && !this.votes[this.item.id]?.vote);
  }

  drawItem() {
    const { set, item } = this;
    this.parts.reading.hidden = !item || !this.parts.form.hidden;
    this.choose(null);
    if (!set || !item) return;
    const vote = this.votes[item.id];
    const isHidden = this.hidesMethods;
    this.columns = columnsOf(set, item, this.chosen, this.isBlind);
    this.root.dataset.item = item.id;
    this.root.dataset.blind = String(isHidden);
    this.drawPlace();
    const before = [...(item.system ? [["system", item.system]] : []), ...item.turns];
    this.parts.prompt.replaceChildren(
      ...before.map(([role, text]) => make("p", "rw-before", make("b", "", `${role}: `), text)),
      make("p", "", item.prompt),
      ...(item.reference ? [make("p", "rw-before", make("b", "", "expected: "), item.reference)] : []),
    );
    this.parts.prompt.scrollTop = 0;
    const titles = this.columns.map((j, i) => (isHidden ? `Answer ${i + 1}` : labelOf(set.header.methods[j])));
    this.drawMethods(isHidden);
    this.drawAnswers(titles, isHidden);
    this.drawVotes(titles, vote);
    this.parts.note.value = vote?.note ?? "";
    find(this.parts.reading, ".rw-live").hidden = isHidden || !this.run.lanes.length;
    this.drawTally();
  }

  /** @param {boolean} isHidden */
  drawMethods(isHidden) {
    const methods = this.set?.header.methods ?? [];
    const boxes = methods.map((method, i) =>
      toggle(labelOf(method), this.columns.includes(i), (isOn) => {
        const others = this.columns.filter((column) => column !== i);
        this.chosen = new Set(isOn ? [...others, i].slice(-3) : others);
        this.drawItem();
      }),
    );
    this.parts.methods.replaceChildren(...(methods.length > 2 && !isHidden ? boxes : []));
  }

  // Compares each answer with the set's reference (plain AR), or with the first answer if there is no reference. The
  // reference is compared with the first answer that differs. While methods are hidden, each is compared with all.
  /** @type {(titles: string[], isHidden: boolean) => void} */
  drawAnswers(titles, isHidden) {
    const { set, item, columns } = this;
    if (!set || !item) return;
    const { methods } = set.header;
    const answers = columns.map((method) => /** @type {ReviewAnswer} */ (item.answers[method]));
    const lanes = answers.map((answer, i) => (isHidden ? null : laneOf(answer, `m${columns[i]}`, titles[i])));
    const first = Math.max(0, columns.findIndex((method) => isReference(methods[method]))); // prettier-ignore
    const unlike = answers.findIndex((other) => isMade(other) && other.text !== answers[first].text);
    this.run = /** @type {Run} */ ({ id: item.id, lanes: lanes.filter((lane) => lane !== null) });
    this.panes = [];
    const nodes = answers.map((answer, i) => {
      const lane = lanes[i];
      const other = i !== first ? first : unlike < 0 ? Number(i === 0) : unlike;
      if (!lane) return plainPane(titles[i], answer, isHidden ? answers : [answers[other]]);
      const report = { choose: this.choose.bind(this) };
      const pane = new TextPane(lane, report, { against: lanes[other] ?? null, name: titles[other] ?? "" });
      pane.draw(lane);
      this.panes.push(pane);
      return pane.element;
    });
    this.parts.answers.replaceChildren(...nodes);
    this.parts.answers.style.setProperty("--columns", String(nodes.length || 1));
    this.parts.switch.replaceChildren(...titles.map((title, i) => button("", title, () => this.switchTo(i))));
    this.switchTo(Math.min(this.lane, nodes.length - 1));
    for (const pane of this.panes) pane.view.toTop();
  }

  // Makes the tab end at the end of the window, so that the page does not scroll.
  fit() {
    this.root.style.setProperty("--rw-around", "0px");
    const around = document.documentElement.scrollHeight - this.root.offsetHeight;
    this.root.style.setProperty("--rw-around", `${around}px`);
  }

  // On a phone, one answer is visible at a time.
  /** @param {number} index */
  switchTo(index) {
    this.lane = Math.max(0, index);
    [...this.parts.answers.children].forEach((node, i) => node.classList.toggle("rw-away", i !== index));
    [...this.parts.switch.children].forEach((node, i) => node.setAttribute("aria-pressed", String(i === index)));
  }

  /** @type {(titles: string[], vote: Vote | undefined) => void} */
  drawVotes(titles, vote) {
    const methods = this.set?.header.methods ?? [];
    const [values, labels] = [[...this.columns.map((method) => methods[method].name), EQUAL, BAD], [...titles, "equal", "both bad"]]; // prettier-ignore
    // A number means the same method while another one is hidden; blind, the places of the answers count.
    const numbers = this.columns.map((method, i) => String((this.isBlind ? i : method) + 1));
    const keys = [...numbers, "0", "x"];
    const hint = this.panes.length
      ? "Click a token for its pass; a wavy line means that AR would choose another token."
      : "";
    put(this.parts.keys, `j next · k previous · ${numbers.join(", ")} better · 0 equal · x both bad · n note. ${hint}`);
    const isTie = areSame(this.columns.map((method) => this.item?.answers[method] ?? null));
    const nodes = values.map((value, i) => {
      const attributes = {
        ...{ "data-key": keys[i], "aria-pressed": vote?.vote === value },
        ...(isTie && i < numbers.length ? { disabled: "", title: "The answers have the same text" } : {}),
      };
      return button(attributes, [make("kbd", "", keys[i]), make("span", "", labels[i])], () => this.cast(value));
    });
    this.parts.buttons.replaceChildren(...nodes);
  }

  // Votes.

  // Casts a vote for the displayed item; the same vote again removes it.
  /** @param {string} value */
  cast(value) {
    if (!this.item) return;
    const isSame = this.votes[this.item.id]?.vote === value;
    this.vote({ vote: isSame ? "" : value, is_blind: this.hidesMethods });
    this.drawItem();
  }

  /** @param {Partial<Vote>} changes */
  vote(changes) {
    const { item } = this;
    if (!item) return;
    const before = this.votes[item.id] ?? { vote: "", note: "", time: "", is_blind: false };
    this.votes = { ...this.votes, [item.id]: { ...before, ...changes, time: new Date().toISOString() } };
    const { vote, note } = this.votes[item.id];
    if (!vote && !note) delete this.votes[item.id];
    this.keep();
    this.redraw(item);
  }

  keep() {
    if (!this.set || keepVotes(this.set.id, this.votes) || this.hasWarned) return;
    this.hasWarned = true;
    this.say(FORGOTTEN);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const isTyping = targetOf(event).closest?.("input:not([type=checkbox]), textarea, select, dialog");
    if (isTyping || isModified(event) || event.defaultPrevented || this.parts.reading.offsetParent === null) return;
    const vote = this.parts.buttons.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (event.key === "j") this.move(1);
    else if (event.key === "k") this.move(-1);
    else if (event.key === "n") this.parts.note.focus();
    else if (event.key === "Escape" && this.selected) this.choose(null);
    else if (vote) vote.click();
    else return;
    event.preventDefault();
  }

  // The drawer of a pass (views/race/drawer.js), for which this view is the view of a run.

  /** @type {(lane: Lane | null, step?: number, token?: number) => void} */
  choose(lane, step = -1, token = -1) {
    this.selected = lane ? { lane, step, token } : null;
    for (const pane of this.panes) pane.view.choose(pane.lane === lane ? step : -1);
    this.drawer.draw();
  }

  /** @param {Lane} lane */
  paneOf(lane) {
    return this.panes.find((pane) => pane.lane === lane);
  }

  canAsk() {
    return false;
  }

  // Files.

  /** @type {(ending: string, write: typeof setText, type: string) => void} */
  save(ending, write, type) {
    const { set, votes } = this;
    if (!set) return undefined;
    if (write !== setText && !Object.keys(votes).length) return this.say("There are no votes or notes to save yet.");
    const name = `${set.header.name.replace(/[^\w-]+/g, "-").replace(/^-+|-+$/g, "") || "set"}.${ending}`;
    download(name, textBlob(write(set, votes), type));
    return this.say(`Saved ${contentOf(write === setText ? set.items.length : 0, votes)} in ${name}.`, true);
  }

  /** @param {File} file */
  async importFile(file) {
    this.say("");
    try {
      if (file.size > REVIEW.file) throw new SetError(`This file is larger than ${REVIEW.file / 1e6} MB. Split it.`);
      const { set, votes } = await readSet(file.stream());
      const isOpen = this.set?.id === set.id;
      if (!set.items.length && !isOpen) throw new SetError("This file has no prompts. Open its set first.");
      // A file of votes, or the study, which is not stored.
      const done = `Opened ${contentOf(set.items.length, votes)} from ${file.name}.`;
      if (this.set && isOpen && !(set.items.length && this.known.has(set.id))) {
        this.open(this.set, votes, this.parts.select.value, this.item?.id);
        return this.say(done, true);
      }
      if (set.id === PINNED && this.known.has(PINNED)) set.id = `${PINNED}-${Date.now()}`; // keeps the visitor's own
      set.header.id = set.id;
      this.remember(set);
      store("localStorage", OPENED, set.id);
      this.open(set, votes);
      const problem = await sets().put(set);
      return this.say(problem || done, !problem);
    } catch (error) {
      return this.say(error instanceof SetError ? error.message : "This file cannot be read.");
    }
  }

  // Draws the button that deletes the set; after the first press it says what is lost.
  drawDelete(isSure = false) {
    const { set, votes } = this;
    this.isSure = isSure;
    this.parts.delete.hidden = !this.known.has(set?.id ?? "");
    put(this.parts.delete, isSure && set ? `Delete ${contentOf(set.items.length, votes)}?` : "Delete this set");
  }

  async remove() {
    const { set } = this;
    if (!set) return undefined;
    if (this.making.set === set) this.making.control?.abort();
    this.known.delete(set.id);
    await sets().remove(set.id);
    keepVotes(set.id, {});
    this.parts.select.value = STUDY;
    this.remember(null);
    return this.chooseSet(STUDY);
  }

  openLive() {
    const { lanes } = this.run;
    const methods = lanes.map(({ settings }) => (settings ? nameOf(settings) : "mars"));
    const names = methods.map((name, i) => (methods.indexOf(name) < i ? `${name}-${i}` : name));
    const heads = lanes.map(({ title }, i) => ({ lane: names[i], title }));
    const run = `review-${this.set?.id}-${this.item?.id}`;
    const head = { run, lanes: heads, pace: 0, recorded: this.set?.header.name };
    const value = valueOf(head, lanes.map(({ lines, verdict }, i) => ({ name: names[i], lines, verdict }))); // prettier-ignore
    this.root.dispatchEvent(new CustomEvent("mars-ask", { bubbles: true, detail: { kind: "replay", value } }));
  }

  // New sets.

  /** @param {boolean} isOn */
  showForm(isOn) {
    this.parts.form.hidden = !isOn;
    find(this.root, "[data-act=new]").setAttribute("aria-pressed", String(isOn));
    this.parts.reading.hidden = isOn || !this.item;
  }

  async begin() {
    this.say("");
    try {
      const set = await setOf(this.parts, (text, name) => this.server.prompts(JSON.stringify({ text, name })));
      this.remember(set);
      this.showForm(false);
      this.parts.prompts.value = this.parts["prompts-file"].value = "";
      store("localStorage", OPENED, set.id);
      this.open(set);
      this.say(await sets().put(set));
      await this.make();
    } catch (error) {
      const { sentence } = /** @type {{ sentence?: string }} */ (error);
      this.say(sentence ?? "The server did not respond. Try again.");
    }
  }

  async make() {
    const { set } = this;
    if (!set) return;
    this.say("");
    const running = this.making.run(set);
    this.drawProgress();
    this.say(await running);
    this.drawProgress();
  }

  // Stores an answer and draws it if it is on the screen.
  /** @type {(set: ReviewSet, item: ReviewItem) => Promise<void>} */
  async made(set, item) {
    const sentence = await sets().put(set);
    if (sentence) this.say(sentence);
    if (this.set !== set) return;
    this.redraw(item);
    if (this.item === item) this.drawItem();
    this.drawProgress();
  }

  drawProgress() {
    const { set, making } = this;
    const missing = set && set.header.made.by === "page" ? missingOf(set) : 0;
    const isMaking = Boolean(set && making.set === set);
    this.parts.making.hidden = !missing && !isMaking;
    this.root.dataset.missing = String(missing);
    this.root.dataset.making = String(isMaking);
    put(find(this.parts.making, "button"), isMaking ? "Stop" : "Continue");
    put(this.parts.progress, missing ? `${counted(missing, "answer")} missing` : "All answers are made");
  }
}

// Returns the pane of an answer without tokens: one without a trace, or one whose method is hidden.
/** @type {(title: string, answer: ReviewAnswer, others: ReviewAnswer[]) => HTMLElement} */
function plainPane(title, answer, others) {
  const { text, fault, is_right: isRight } = answer;
  const at = firstUnlike(text, others.filter(Boolean));
  const isMarked = at < text.length;
  const end = isMarked ? at + 1 + text.slice(at + 1).search(/\s|$/) : at;
  const body = make("div", { class: "rv-text rw-plain", tabindex: 0, role: "group", "aria-label": `Text of ${title}` });
  if (fault) body.append(make("em", "", fault));
  else body.append(text.slice(0, at), ...(isMarked ? [make("mark", "", text.slice(at, end))] : []), text.slice(end));
  const head = make("header", "rv-head", make("h3", "", title), make("span", "rv-verdict", verdictText(isRight)));
  return make("article", "rv-pane", head, body);
}

// Mounts the view; called by the component's js_on_load.
/** @type {(element: HTMLElement, server: ReviewServer) => void} */
export function mountReview(element, server) {
  const root = find(element, ".mars-review");
  root.reviewView = new ReviewView(root, server);
}
