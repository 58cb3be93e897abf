// The Review tab: a list of prompts with their marks, two or three answers side by side, votes and notes.

import { button, find, isModified, make, put, targetOf, toggle } from "../../core/dom.js";
import { download, textBlob } from "../../core/files.js";
import { nameOf } from "../../core/methods.js";
import { store, stored } from "../../core/storage.js";
import { REVIEW } from "../../core/table.js";
import { valueOf } from "../../core/wire.js";
import { counted, verdictText } from "../../core/words.js";
import { TextPane } from "../../text/pane.js";
import { Drawer } from "../race/drawer.js";
import { Making, makingForm, missingOf } from "./making.js";
import { PINNED, sets } from "./pins.js";
import { MARKS, SetError, columnsOf, isMade, labelOf, laneOf, readSet, selected, setText } from "./sets.js";
import { BAD, EQUAL, keepVotes, mergedVotes, tally, votesCsv, votesJsonl, votesOf } from "./votes.js";

const STUDY = "study"; // value of the study in the list of sets
const OPENED = "mars-review-set";
const FORGOTTEN =
  "This browser does not store votes (storage is full or blocked). Export them before you close the page.";
const UNREAD = "The study could not be loaded. Check the connection and reload the page, or open a set file.";
/** @type {[key: string, label: string][]} */
const OTHER_VOTES = [["0", "equal"], ["x", "both bad"]]; // prettier-ignore
const KEYS = "j next · k previous · 1 to 3 better · 0 equal · x both bad · n note";

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
  isBlind = false;
  isByKey = false;

  /**
   * @param {HTMLElement} root
   * @param {{ prompts(posted: string): Promise<any> }} server
   */
  constructor(root, server) {
    this.root = root;
    this.making = new Making((set, item) => this.made(set, item));
    this.form = makingForm(
      JSON.parse(root.dataset.checkpoints || "[]"),
      (text, name) => server.prompts(JSON.stringify({ text, name })),
      (set) => this.begin(set),
    );
    /** @type {(label: string, className?: string) => HTMLElement} */
    const line = (label, className = "") =>
      make("p", { class: `rw-line ${className}`, role: "status", "aria-label": label });
    this.select = make("select", { "aria-label": "Set" });
    this.select.addEventListener("change", () => this.chooseSet(this.select.value));
    const file = make("input", { type: "file", hidden: "", "aria-label": "Set file" });
    file.addEventListener("change", () => {
      const [chosen] = file.files ?? [];
      if (chosen) this.importFile(chosen);
      file.value = "";
    });
    /** @type {(text: string, name: string, act: () => void) => HTMLElement} */
    const entry = (text, name, act) =>
      button({ "data-act": name }, text, () => {
        menu.open = false;
        act();
      });
    const menu = make(
      "details",
      "rw-menu",
      make("summary", "", "File"),
      make(
        "div",
        "",
        entry("Open a set…", "open", () => file.click()),
        entry("Save votes as CSV", "csv", () => this.save("votes.csv", votesCsv, "text/csv")),
        entry("Save votes as JSONL", "jsonl", () => this.save("votes.jsonl", votesJsonl, "application/jsonl")),
        entry("Save the set with votes", "set", () => this.save("jsonl", setText, "application/jsonl")),
        entry("Delete this set", "delete", () => this.remove()),
      ),
      file,
    );
    this.maker = toggle("New set", false, (isOn) => this.showForm(isOn));
    this.fault = line("Message", "rw-fault");
    this.progress = make("span", "rv-num");
    this.go = button("rw-go", "Continue", () => (this.making.set ? this.making.stop() : this.make()));
    this.makingLine = make("div", { class: "rw-row", hidden: "" }, this.progress, this.go);
    this.tally = line("Votes", "rw-tally rv-num");
    this.search = make("input", { type: "search", placeholder: "Search", "aria-label": "Search prompts and answers" });
    this.search.addEventListener("input", () => this.drawList());
    const options = Object.entries(MARKS).map(([name, { mark, text }]) => make("option", { value: name }, `${mark} ${text}`.trim())); // prettier-ignore
    this.filter = make("select", { "aria-label": "Filter" }, make("option", { value: "" }, "all prompts"), ...options);
    this.filter.addEventListener("change", () => this.drawList());
    this.list = make("ol", "rw-list");
    const left = make(
      "div",
      "rw-left",
      make("div", "rw-row", this.select, menu, this.maker),
      this.fault,
      this.makingLine,
      this.tally,
      make("div", "rw-row", this.search, this.filter),
      this.list,
    );

    this.place = make("span", "rw-place rv-num");
    this.blind = toggle("Blind", false, (isOn) => {
      this.isBlind = isOn;
      this.drawItem();
    });
    this.blind.title = "Hide the methods and shuffle the answers until you vote";
    this.methods = make("span", "rw-methods");
    this.live = button("rw-live", "Open in Live", () => this.openLive());
    /** @type {(label: string, text: string, by: number) => HTMLElement} */
    const step = (label, text, by) => button({ "aria-label": label, class: "rw-step" }, text, () => this.move(by));
    const head = make("div", "rw-row", step("Previous prompt", "‹", -1), this.place, step("Next prompt", "›", 1), this.methods, this.blind, this.live); // prettier-ignore
    this.prompt = make("div", { class: "rw-prompt", translate: "no" });
    this.switch = make("div", { class: "rw-switch", role: "group", "aria-label": "Answer" });
    this.answers = make("div", { class: "rw-answers rv-counts", translate: "no" });
    this.buttons = make("div", { class: "rw-votes", role: "group", "aria-label": "Vote" });
    this.note = make("input", {
      class: "rw-note",
      maxlength: REVIEW.note,
      placeholder: "Note (n)",
      "aria-label": "Note",
    });
    this.note.addEventListener("input", () => this.vote({ note: this.note.value }));
    this.note.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" && event.key !== "Enter") return;
      event.stopPropagation();
      this.note.blur();
    });
    const foot = make("div", "rw-foot", this.buttons, this.note, make("p", "rw-keys", KEYS));
    this.reading = make("div", { class: "rw-reading", hidden: "" }, head, this.prompt, this.switch, this.answers, foot);
    this.root.replaceChildren(left, this.reading, this.form);
    const drawer = make("aside", { class: "rv-drawer", hidden: "" });
    this.reading.append(drawer);
    this.drawer = new Drawer(drawer, /** @type {any} */ (this));
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("mars-pinned", ({ detail }) => {
      this.remember(detail);
      if (this.set?.id === PINNED) this.open(detail);
    });
    this.start();
  }

  async start() {
    for (const set of await sets().all()) this.remember(set);
    const last = stored("localStorage", OPENED);
    this.remember(null);
    await this.chooseSet(this.known.has(last) ? last : STUDY);
  }

  /**
   * Adds a set to the list of sets.
   * @param {ReviewSet | null} set
   */
  remember(set) {
    if (set) this.known.set(set.id, set);
    const own = [...this.known.values()].map(({ id, header }) => make("option", { value: id }, header.name || id));
    const value = this.select.value;
    this.select.replaceChildren(make("option", { value: STUDY }, "Study: 100 prompts"), ...own);
    if (value) this.select.value = value;
  }

  /** @param {string} id */
  async chooseSet(id) {
    this.showForm(false);
    store("localStorage", OPENED, id);
    const set = this.known.get(id);
    if (set) return this.open(set);
    this.root.dataset.phase = "opening";
    try {
      const { body, ok } = await fetch(this.root.dataset.study || "");
      if (!ok || !body) throw new Error("missing");
      let isFirst = true;
      const { set: study } = await readSet(body, (reader) => {
        if (isFirst && reader.header)
          this.open({ id: reader.header.id, header: reader.header, items: reader.items }, {}, STUDY); // prettier-ignore
        else this.drawList();
        isFirst = false;
      });
      if (this.set?.id === study.id) this.open(study, {}, STUDY, this.item?.id);
    } catch (error) {
      this.say(error instanceof SetError ? error.message : UNREAD);
      this.root.dataset.phase = "error";
    }
    return undefined;
  }

  /**
   * @param {ReviewSet} set
   * @param {Record<string, Vote>} [votes] that a file brought
   * @param {string} [value] in the list of sets
   * @param {string} [at] the item to show
   */
  open(set, votes = {}, value = set.id, at = "") {
    const own = this.set?.id === set.id ? this.votes : votesOf(set.id);
    Object.assign(this, { set, votes: mergedVotes(own, votes) });
    if (this.set?.id !== set.id) this.chosen.clear();
    if (Object.keys(votes).length) this.keep();
    this.select.value = value;
    this.item = set.items.find(({ id }) => id === at) ?? set.items[0] ?? null;
    this.root.dataset.set = set.id;
    this.root.dataset.phase = "ready";
    this.drawAll();
  }

  drawAll() {
    this.drawProgress();
    this.drawList();
    this.drawItem();
  }

  /** @param {string} [sentence] */
  say(sentence = "") {
    put(this.fault, sentence);
  }

  // The list.

  get shown() {
    return this.set ? selected(this.set.items, this.votes, this.filter.value, this.search.value.trim()) : [];
  }

  drawList() {
    const { shown } = this;
    this.root.dataset.shown = String(shown.length);
    this.list.replaceChildren(...shown.map((item) => this.row(item)));
    this.drawTally();
    if (!shown.length) this.list.append(make("li", "rw-none", this.set?.items.length ? "No prompt matches." : "No prompts yet. Pin a run on Live.")); // prettier-ignore
  }

  drawTally() {
    this.root.dataset.votes = String(Object.values(this.votes).filter(({ vote }) => vote).length);
    put(this.tally, this.set && !this.hidesMethods ? tally(this.set.header.methods, this.votes) : "");
  }

  /** @param {ReviewItem} item */
  row(item) {
    const vote = this.votes[item.id];
    const marks = Object.values(MARKS).filter(({ mark, is }) => mark && is(item, vote));
    const node = button(
      { "data-item": item.id, ...(item === this.item ? { "aria-current": "true" } : {}) },
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
    const row = this.list.querySelector(`[data-item="${CSS.escape(item.id)}"]`)?.parentElement;
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
    const row = this.list.querySelector("[aria-current]");
    row?.scrollIntoView({ block: "nearest" });
  }

  /** @param {number} by */
  move(by) {
    const { shown, item } = this;
    const all = this.set?.items ?? [];
    const at = item ? shown.indexOf(item) : -1;
    // After a vote, the filter may no longer select the displayed item: continue with its neighbours.
    const place = item ? all.indexOf(item) : 0;
    const later = by > 0 ? shown.find((other) => all.indexOf(other) > place) : shown.findLast((other) => all.indexOf(other) < place); // prettier-ignore
    const next = at < 0 ? later : shown[at + by];
    if (next) this.show(next);
  }

  // The displayed item.

  get hidesMethods() {
    return this.isBlind && Boolean(this.item && !this.votes[this.item.id]?.vote);
  }

  drawItem() {
    const { set, item } = this;
    this.reading.hidden = !item || !this.form.hidden;
    this.choose(null);
    if (!set || !item) return;
    const vote = this.votes[item.id];
    const isHidden = this.hidesMethods;
    this.columns = columnsOf(set, item, this.chosen, this.isBlind);
    this.root.dataset.item = item.id;
    this.root.dataset.blind = String(isHidden);
    put(this.place, `${set.items.indexOf(item) + 1} of ${set.items.length}`);
    const before = [...(item.system ? [["system", item.system]] : []), ...item.turns];
    this.prompt.replaceChildren(
      ...before.map(([role, text]) => make("p", "rw-before", make("b", "", `${role}: `), text)),
      make("p", "", item.prompt),
      ...(item.reference ? [make("p", "rw-before", make("b", "", "expected: "), item.reference)] : []),
    );
    this.prompt.scrollTop = 0;
    const titles = this.columns.map((method, i) =>
      isHidden ? `Answer ${i + 1}` : labelOf(set.header.methods[method]),
    );
    this.drawMethods(isHidden);
    this.drawAnswers(titles, isHidden);
    this.drawVotes(titles, vote);
    this.note.value = vote?.note ?? "";
    this.live.hidden = isHidden || !this.run.lanes.length;
    this.drawTally();
  }

  /** @param {boolean} isHidden */
  drawMethods(isHidden) {
    const methods = this.set?.header.methods ?? [];
    const boxes = methods.map((method, i) => {
      const node = toggle(labelOf(method), this.columns.includes(i), (isOn) => {
        const some = new Set(this.columns);
        if (isOn) some.add(i);
        else some.delete(i);
        this.chosen = new Set([...some].slice(-3));
        this.drawItem();
      });
      return node;
    });
    this.methods.replaceChildren(...(methods.length > 2 && !isHidden ? boxes : []));
  }

  /**
   * @param {string[]} titles
   * @param {boolean} isHidden
   */
  drawAnswers(titles, isHidden) {
    const { set, item, columns } = this;
    if (!set || !item) return;
    const answers = columns.map((method) => /** @type {ReviewAnswer} */ (item.answers[method]));
    const lanes = answers.map((answer, i) => (isHidden ? null : laneOf(answer, `m${columns[i]}`, labelOf(set.header.methods[columns[i]])))); // prettier-ignore
    this.run = /** @type {Run} */ ({ id: item.id, lanes: lanes.filter((lane) => lane !== null) });
    this.panes = [];
    const nodes = answers.map((answer, i) => {
      const lane = lanes[i];
      const found = answers.findIndex((other) => isMade(other) && other.text !== answer.text);
      const other = found < 0 ? Number(i === 0) : found;
      if (!lane) return plainPane(titles[i], answer, answers[other] ?? answer);
      const pane = new TextPane(
        lane,
        { choose: (on, step, token) => this.choose(on, step, token) },
        { against: lanes[other] ?? null },
      );
      pane.draw(lane);
      if (answer.is_same && !lane.isAr) pane.head.append(make("span", "rw-same", "same text as plain AR"));
      this.panes.push(pane);
      return pane.element;
    });
    this.answers.replaceChildren(...nodes);
    this.answers.style.setProperty("--columns", String(nodes.length || 1));
    this.switchTo(0);
    this.switch.replaceChildren(...titles.map((title, i) => button("", title, () => this.switchTo(i))));
    for (const pane of this.panes) pane.view.toTop();
    this.fit();
  }

  // Makes the tab end at the end of the window, so that the page does not scroll.
  fit() {
    const { top, bottom } = this.root.getBoundingClientRect();
    const below = document.documentElement.scrollHeight - scrollY - bottom;
    this.root.style.setProperty("--rw-around", `${Math.ceil(top + scrollY + below)}px`);
  }

  // On a phone, one answer is visible at a time.
  /** @param {number} index */
  switchTo(index) {
    [...this.answers.children].forEach((node, i) => node.classList.toggle("rw-away", i !== index));
    [...this.switch.children].forEach((node, i) => node.setAttribute("aria-pressed", String(i === index)));
  }

  /**
   * @param {string[]} titles
   * @param {Vote | undefined} vote
   */
  drawVotes(titles, vote) {
    const { methods } = this.set?.header ?? { methods: [] };
    /** @type {[key: string, label: string, vote: string][]} */
    const entries = [
      ...titles.map((title, i) => /** @type {[string, string, string]} */ ([String(i + 1), title, methods[this.columns[i]].name])), // prettier-ignore
      ...OTHER_VOTES.map(([key, label]) => /** @type {[string, string, string]} */ ([key, label, key === "0" ? EQUAL : BAD])), // prettier-ignore
    ];
    this.buttons.replaceChildren(
      ...entries.map(
        ([key, label, value]) =>
        button({ "data-key": key, "aria-pressed": vote?.vote === value }, [make("kbd", "", key), make("span", "", label)], () => this.cast(value)), // prettier-ignore
      ),
    );
  }

  // Votes.

  /**
   * Casts a vote for the displayed item; the same vote again removes it.
   * @param {string} value
   */
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
    const isTyping = targetOf(event).closest?.(
      "input:not([type=checkbox]), textarea, select, [contenteditable], dialog",
    );
    if (isTyping || isModified(event) || event.defaultPrevented || this.reading.offsetParent === null) return;
    const vote = /** @type {HTMLElement | null} */ (
      this.buttons.querySelector(`[data-key="${CSS.escape(event.key)}"]`)
    );
    if (event.key === "j") this.move(1);
    else if (event.key === "k") this.move(-1);
    else if (event.key === "n") this.note.focus();
    else if (event.key === "Escape" && this.selected) this.choose(null);
    else if (vote) vote.click();
    else return;
    event.preventDefault();
  }

  // The drawer of a pass (views/race/drawer.js), for which this view is the view of a run.

  /**
   * @param {Lane | null} lane
   * @param {number} [step]
   * @param {number} [token]
   */
  choose(lane, step = -1, token = -1) {
    this.selected = lane ? { lane, step, token } : null;
    for (const pane of this.panes) pane.view.choose(pane.lane === lane ? step : -1);
    const column = this.panes.findIndex((pane) => pane.lane === lane);
    this.reading.dataset.drawer = column > 0 && column === this.panes.length - 1 ? "left" : "right";
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

  /**
   * @param {string} ending
   * @param {(set: ReviewSet, votes: Record<string, Vote>) => string} write
   * @param {string} type
   */
  save(ending, write, type) {
    const { set } = this;
    if (!set) return;
    const name = set.header.name.replace(/[^\w-]+/g, "-").replace(/^-+|-+$/g, "") || "set";
    download(`${name}.${ending}`, textBlob(write(set, this.votes), type));
  }

  /** @param {File} file */
  async importFile(file) {
    this.say();
    try {
      if (file.size > REVIEW.file) throw new SetError(`This file is larger than ${REVIEW.file / 1e6} MB. Split it.`);
      const stream = file.name.endsWith(".gz") ? file.stream().pipeThrough(/** @type {any} */ (new DecompressionStream("gzip"))) : file.stream(); // prettier-ignore
      const { set, votes } = await readSet(stream);
      if (!set.items.length) return this.addVotes(set, votes);
      const known = set.id === this.set?.id && !this.known.has(set.id);
      if (known) return this.open(/** @type {ReviewSet} */ (this.set), votes, this.select.value, this.item?.id); // the study
      this.remember(set);
      store("localStorage", OPENED, set.id);
      this.open(set, votes);
      this.say(await sets().put(set));
    } catch (error) {
      this.say(error instanceof SetError ? error.message : "This file cannot be read.");
    }
    return undefined;
  }

  /**
   * Adds the votes of a file without prompts to its set, if that set is open.
   * @param {ReviewSet} set
   * @param {Record<string, Vote>} votes
   */
  addVotes(set, votes) {
    if (!this.set || this.set.id !== set.id) throw new SetError("This file has no prompts. Open its set first.");
    this.open(this.set, votes, this.select.value, this.item?.id);
  }

  async remove() {
    const { set } = this;
    if (!set || !this.known.has(set.id)) return this.say("The study cannot be deleted.");
    if (this.making.set === set) this.making.stop();
    this.known.delete(set.id);
    await sets().remove(set.id);
    keepVotes(set.id, {});
    this.select.value = STUDY;
    this.remember(null);
    return this.chooseSet(STUDY);
  }

  openLive() {
    const { lanes } = this.run;
    const names = lanes.map(({ settings }, i) => {
      const name = settings ? nameOf(settings) : "mars";
      return lanes.slice(0, i).some((other) => other.settings && nameOf(other.settings) === name)
        ? `${name}-${i}`
        : name;
    });
    const heads = lanes.map(({ title }, i) => ({ lane: names[i], title }));
    const head = {
      run: `review-${this.set?.id}-${this.item?.id}`,
      lanes: heads,
      pace: 0,
      recorded: this.set?.header.name,
    };
    const value = valueOf(head, lanes.map(({ lines, verdict }, i) => ({ name: names[i], lines, verdict }))); // prettier-ignore
    this.root.dispatchEvent(new CustomEvent("mars-ask", { bubbles: true, detail: { kind: "replay", value } }));
  }

  // New sets.

  /** @param {boolean} isOn */
  showForm(isOn) {
    this.form.hidden = !isOn;
    this.maker.setAttribute("aria-pressed", String(isOn));
    this.reading.hidden = isOn || !this.item;
  }

  /** @param {ReviewSet} set */
  async begin(set) {
    this.remember(set);
    this.showForm(false);
    store("localStorage", OPENED, set.id);
    this.open(set);
    this.say(await sets().put(set));
    await this.make();
  }

  async make() {
    const { set } = this;
    if (!set) return;
    this.say();
    const running = this.making.run(set);
    this.drawProgress();
    const sentence = await running;
    this.say(sentence);
    this.drawProgress();
  }

  /**
   * Stores an answer and draws it if it is on the screen.
   * @param {ReviewSet} set
   * @param {ReviewItem} item
   */
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
    this.makingLine.hidden = !missing && !isMaking;
    this.root.dataset.missing = String(missing);
    this.root.dataset.making = String(isMaking);
    put(this.go, isMaking ? "Stop" : "Continue");
    put(this.progress, missing ? `${counted(missing, "answer")} missing` : "All answers are made");
  }
}

/**
 * Returns the pane of an answer without tokens: one without a trace, or one whose method is hidden.
 * @param {string} title
 * @param {ReviewAnswer} answer
 * @param {ReviewAnswer} other
 */
function plainPane(title, answer, other) {
  const { text, fault, is_right: isRight } = answer;
  let at = 0;
  while (at < text.length && text[at] === other.text[at]) at += 1;
  const isMarked = isMade(other) && at < text.length;
  const end = isMarked ? at + 1 + text.slice(at + 1).search(/\s|$/) : at;
  const body = make("div", { class: "rv-text rw-plain", tabindex: 0, role: "group", "aria-label": `Text of ${title}` });
  if (fault) body.append(make("em", "", fault));
  else body.append(text.slice(0, at), ...(isMarked ? [make("mark", "", text.slice(at, end))] : []), text.slice(end));
  const head = make("header", "rv-head", make("h3", "", title), make("span", "rv-verdict", verdictText(isRight)));
  return make("article", "rv-pane", head, body);
}

/**
 * Mounts the view; called by the component's js_on_load.
 * @param {HTMLElement} element
 * @param {{ prompts(posted: string): Promise<any> }} server
 */
export function mountReview(element, server) {
  const root = find(element, ".mars-review");
  root.reviewView = new ReviewView(root, server);
}
