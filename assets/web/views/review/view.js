// The Review tab: holds the current set, prompt and pair, and connects the bar, the answers, the form for judgements,
// the table, the charts, the keys and the storage.

import { find, make, put } from "../../core/dom.js";
import { textOf } from "../../core/files.js";
import { store, stored } from "../../core/storage.js";
import { capitalised, counted, whole } from "../../core/words.js";
import { Charts } from "./charts.js";
import { mergedRows, replayOf, saveFile } from "./files.js";
import { Bar, Keeping, details, keptText, keysHelp, originText, sealedText } from "./frame.js";
import { Judging, noteOf } from "./judging.js";
import { HOLD, listen } from "./keys.js";
import { Judgements, Seen } from "./kept.js";
import { Making } from "./making.js";
import {
  LEGEND,
  Reading,
  allColumns,
  askedNodes,
  maskedColumns,
  nothingText,
  pairColumns,
  seenText,
} from "./reading.js";
import { NOTHING, isSaidAlike, lastOfReviewer, pairOf, saidOf, sendable, titleOf, unitOf, without } from "./rows.js";
import { Ahead, Server, pathOf } from "./server.js";
import { ALL, Table, filterOf, filtered, linesOf, linkOf } from "./table.js";

const NEAR = [1, -1, 2, 3]; // prompts to fetch ahead, relative to the current one
const KEY = "mars-review-key";
const NO_SETS = "This server has no review sets.";
const STUDY = "study";
const PAUSE = 300; // milliseconds without a judgement before charts are redrawn

export class ReviewView {
  /** @type {ReviewAbout} */
  about;
  /** @type {number[]} */
  order = []; // numbers of the prompts in reading order
  at = 0; // index of the current prompt in `order`
  other = 0; // index of the method that is compared with the reference
  isWide = false; // whether all methods are shown instead of the pair
  masked = /** @type {"" | "each" | "end"} */ ("");
  filter = ALL;
  timer = 0;
  token = 0; // number of the latest request for a prompt; responses to earlier requests are dropped
  /** @type {ReviewPrompt | null} */
  prompt = null;
  /** @type {MaskedPrompt | null} */
  hidden = null;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.status = find(root, ".rw-status");
    this.server = new Server();
    this.server.key = stored("sessionStorage", KEY);
    this.judgements = new Judgements(this.server, () => this.renew());
    this.seen = new Seen();
    this.bar = new Bar({
      open: (name) => this.open(name),
      pair: (way) => this.pairWith(way),
      mask: (how) => this.mask(/** @type {"" | "each" | "end"} */ (how)),
      widen: () => this.widen(!this.isWide),
      go: (by) => this.go(by),
    });
    this.keeping = new Keeping({
      renamed: () => this.renew(),
      unlock: (key) => this.unlock(key),
      save: (form) => this.save(form),
      merge: (file) => this.merge(file),
    });
    this.keeping.key.value = this.server.key;
    this.said = make("p", { class: "rw-said", role: "status" });
    this.asked = make("div", { class: "rw-asked", translate: "no" });
    this.legend = make("p", "rw-hint");
    const answers = make("div", { class: "rw-answers", translate: "no" });
    const judging = make("div", "rw-judging");
    this.reading = new Reading(answers, { open: (way) => this.openLive(way) });
    this.judging = new Judging(judging, {
      say: (said) => this.say(said),
      note: (text, isDone) => this.noted(text, isDone),
    });
    this.table = new Table({ filter: (filter) => this.filterBy(filter), go: (number) => this.goTo(number) });
    this.charts = new Charts(root);
    this.charted = details("Results", this.charts.element, () => this.drawCharts());
    this.tabled = details("All prompts", this.table.element, () => this.table.draw(true));
    this.making = new Making(this.server, this.judgements.sets, { made: (name, title) => this.keepSet(name, title) });
    this.made = details("New set", this.making.element, () => this.openMaking());
    this.body = find(root, ".rw-body");
    this.body.replaceChildren(
      this.bar.element,
      this.asked,
      answers,
      this.legend,
      this.said,
      judging,
      this.keeping.element,
      keysHelp(),
      this.tabled,
      this.charted,
      this.made,
    );
    listen(root, this);
    window.addEventListener("hashchange", () => this.follow());
    this.begin();
  }

  get reviewer() {
    return this.keeping.name.value;
  }

  async begin() {
    try {
      const { sets, keeps } = await this.server.json("sets");
      this.canKeep = keeps;
      this.keeping.keyLabel.hidden = !keeps;
      this.bar.list(sets);
      for (const set of await this.judgements.sets.all()) {
        if (set.asked) this.made.open = true;
        else this.bar.listOwn(set);
      }
      if (!sets.length) throw Object.assign(new Error(), { sentence: NO_SETS });
      this.root.dataset.sets = String(sets.length);
      await this.follow(true);
    } catch (error) {
      this.fail(error);
    }
  }

  openMaking() {
    this.making.resume();
    return this.trying(async () => this.making.bound((await this.server.json("sets")).making));
  }

  /**
   * Stores a new set in this browser, sealed by the server, and opens it.
   * @param {string} name
   * @param {string} title
   */
  async keepSet(name, title) {
    const { sealed, why } = await this.server.sealed(name);
    if (sealed) await this.judgements.sets.put({ id: name, name: title, sealed });
    else await this.judgements.sets.remove(name);
    this.bar.listOwn({ id: name, name: title });
    await this.open(name);
    if (why && this.root.dataset.phase === "open") put(this.status, why);
  }

  // Shows the state that the page's address contains: a set, a prompt, a pair, whether labels are hidden, and the
  // filter.
  async follow(isFirst = false) {
    const query = new URLSearchParams(location.hash.slice(1));
    if (!isFirst && (!query.has("review") || location.hash === this.hash)) return;
    const masked = query.get("masked");
    // Hide the labels if the address contains no state; otherwise follow the address, so that a link shows what its
    // sender saw.
    this.masked = masked === "each" || masked === "end" ? masked : query.has("review") ? "" : "each";
    this.other = Number(query.get("beside")) || 0;
    this.isWide = query.has("all");
    this.filter = filterOf(query);
    if (Object.keys(linkOf(this.filter)).length) this.tabled.open = true;
    await this.open(query.get("review") || STUDY, query.get("at") || "");
  }

  /**
   * @param {string} address
   * @param {string} [item] id of the prompt to show first
   */
  async open(address, item = "") {
    put(this.status, "Opening…");
    try {
      await this.bring(address);
      const path = pathOf(address);
      const pair = this.masked ? this.maskedPair(path) : "";
      const about = await this.server.json(pair ? `${path}/masked/${pair}` : path);
      this.about = about;
      const { ways, reference } = this.about;
      if (!ways[this.other] || this.other === reference) this.other = ways.findIndex((_, way) => way !== reference);
      /** @type {Ahead<ReviewPrompt>} */
      this.prompts = new Ahead((number) => this.server.json(`${path}/items/${number}`));
      /** @type {Ahead<MaskedPrompt>} */
      this.maskeds = new Ahead((number) => this.server.json(`${path}/masked/${pair}/${number}`));
      this.fillBar();
      this.seen.open(this.about.id);
      await this.judgements.open(this.about, Boolean(this.masked));
      this.table.build(this.about.items, this.judgements.rows.values());
      this.arrange(item);
      this.charted.hidden = Boolean(this.masked);
      this.drawCharts();
      this.body.hidden = false;
      this.root.dataset.phase = "open";
      put(this.status, originText(this.about));
      await this.draw();
    } catch (error) {
      this.fail(error);
    }
  }

  // Sends the server the sealed copy of a set that is stored in this browser, in case the server no longer has the set.
  /** @param {string} address */
  async bring(address) {
    const set = (await this.judgements.sets.all()).find(({ id }) => id === address);
    if (set) await this.server.bring(set.sealed);
  }

  // Returns the server's name for the compared pair. The order of the methods in the name does not reveal which method
  // is on which side, because the server assigns the sides.
  /** @param {string} path */
  maskedPair(path) {
    const known = this.about && pathOf(this.about.address) === path ? this.about.reference : 0;
    return `${known}-${this.other === known ? (known === 0 ? 1 : 0) : this.other}`;
  }

  /** @param {unknown} error */
  fail(error) {
    put(
      this.status,
      /** @type {{ sentence?: string }} */ (error).sentence || "This could not be shown. Reload the page.",
    );
    this.root.dataset.phase = "error";
    this.body.hidden = !this.root.dataset.sets; // the list of sets stays
  }

  fillBar() {
    this.bar.fill(this.about, this.other, this.masked, this.isWide);
    this.keeping.exports.hidden = Boolean(this.masked);
    this.root.dataset.masked = this.masked;
  }

  // Updates the list of prompts to read: those that pass the filter and, for a masked pair, have different texts. Stays
  // at the current prompt if possible.
  arrange(item = "") {
    const { items } = this.about;
    const before = item || items[this.order[this.at]]?.id || "";
    const lines = this.lines();
    const passing = filtered(lines, this.filter);
    this.order = passing.map(({ number }) => number);
    this.at = Math.max(
      0,
      this.order.findIndex((number) => items[number].id === before),
    );
    this.table.show(passing, lines.length, this.filter);
  }

  lines() {
    return linesOf(this.about.items, this.other, (item) => this.rowOf(item));
  }

  /** @param {ReviewFilter} filter */
  filterBy(filter) {
    this.leaveNote();
    const before = this.item;
    this.filter = filter;
    this.arrange();
    return before === this.item ? this.link() : this.draw();
  }

  /** @param {number} number */
  goTo(number) {
    this.to(this.order.indexOf(number));
    this.root.scrollIntoView({ block: "start" });
  }

  // Redraws the charts after a pause without further calls: sends all rows to the server, which computes the figures.
  drawCharts() {
    clearTimeout(this.timer);
    if (!this.charted.open || this.masked) return;
    this.timer = setTimeout(() => this.trying(() => this.fetchFigures()), PAUSE);
  }

  async fetchFigures() {
    const { about } = this;
    const rows = [...this.judgements.rows.values()].map(sendable);
    const figures = await this.server.json(`${pathOf(about.address)}/figures`, { rows });
    if (!this.masked && about === this.about) this.charts.show(about, figures, this.other);
  }

  get number() {
    return this.order[this.at] ?? -1;
  }

  /** @param {number} by */
  go(by) {
    this.to(this.at + by);
  }

  /** @param {number} index */
  to(index) {
    this.leaveNote();
    this.at = Math.max(0, Math.min(this.order.length - 1, index));
    return this.draw();
  }

  toUnjudged() {
    const { items } = this.about;
    const { length } = this.order;
    for (let step = 1; step <= length; step += 1) {
      const index = (this.at + step) % length;
      if (!this.rowOf(items[this.order[index]].id)?.preference) return this.to(index);
    }
    put(this.said, "You have judged all of these prompts.");
    return undefined;
  }

  /** @param {number} other */
  pairWith(other) {
    this.leaveNote();
    this.other = other;
    this.arrange();
    this.drawCharts();
    if (this.masked) return this.open(this.about.address);
    this.fillBar();
    return this.draw();
  }

  /** @param {boolean} isWide */
  widen(isWide) {
    this.isWide = isWide;
    this.fillBar();
    return this.draw();
  }

  // Hides or shows the labels. Showing them also reveals the sides of all masked judgements.
  /** @param {"" | "each" | "end"} masked */
  async mask(masked) {
    this.leaveNote();
    const isOpen = masked || (await this.trying(() => this.judgements.reveal([...this.judgements.rows.values()])));
    if (!isOpen) {
      this.bar.sides.select.value = this.masked;
      return;
    }
    const item = this.about.items[this.number]?.id || "";
    this.masked = masked;
    this.forget();
    await this.open(this.about.address, item);
  }

  // Removes all received and drawn content at once and ignores pending requests, so that hidden labels cannot be found
  // on the page.
  forget() {
    this.token += 1;
    Object.assign(this, { prompt: null, hidden: null, prompts: null, maskeds: null });
    this.asked.replaceChildren();
    this.reading.show([]);
    this.table.show([], 0, this.filter);
    this.charts.clear();
  }

  async draw() {
    const { number, about } = this;
    this.link();
    if (number < 0) return this.drawNothing();
    this.token += 1;
    const { token } = this;
    try {
      if (this.masked) {
        const hidden = await this.maskeds.get(number);
        if (token !== this.token) return;
        this.hidden = hidden;
        this.prompt = null;
        this.drawAsked(hidden);
        await this.drawMasked();
      } else {
        const prompt = await this.prompts.get(number);
        if (token !== this.token) return;
        Object.assign(this, { prompt, hidden: null });
        this.drawAsked(prompt);
        this.seen.add(prompt.id);
        this.reading.show(
          this.isWide ? allColumns(about, prompt, this.other) : pairColumns(about, prompt, about.reference, this.other),
        );
      }
    } catch (error) {
      put(this.said, /** @type {{ sentence?: string }} */ (error).sentence || "");
      return;
    }
    put(this.said, this.reading.said);
    this.root.dataset.at = about.items[number].id;
    this.drawJudgement();
    const near = NEAR.map((by) => this.order[this.at + by]).filter((number) => number !== undefined);
    (this.masked ? this.maskeds : this.prompts).fetch(near);
  }

  drawNothing() {
    this.asked.replaceChildren(make("p", "", nothingText(Boolean(this.masked))));
    this.reading.show([]);
    this.drawJudgement();
  }

  // Draws the texts of a masked pair. Once its judgement is revealed, also draws the labels, passes and checks.
  async drawMasked() {
    const { hidden, about } = this;
    if (!hidden) return;
    const row = this.rowOf(hidden.id);
    if (row?.left === undefined) {
      this.reading.show(maskedColumns(hidden));
      return;
    }
    const prompt = await this.prompts.get(this.number);
    if (hidden !== this.hidden) return;
    this.prompt = prompt;
    this.seen.add(hidden.id);
    put(this.legend, LEGEND.shown);
    this.reading.show(pairColumns(about, prompt, wayOf(about, row.left), wayOf(about, row.right)));
  }

  /** @param {ReviewAsked} asked */
  drawAsked(asked) {
    this.asked.replaceChildren(...askedNodes(asked, Boolean(this.masked)));
    const lines = this.lines();
    const numItems = this.about.items.length;
    const same = this.masked ? numItems - lines.length : 0;
    const { ways, reference } = this.about;
    const identical = same || lines.filter(({ mark }) => mark?.is_same).length;
    const pair = capitalised([this.other, reference].map((way) => titleOf(ways[way].name)).join(" and "));
    put(
      find(this.root, ".rv-finding"),
      `${pair} give the same answer to ${whole(identical)} of ${counted(numItems, "prompt")}.`,
    );
    const identicalText = same ? `, ${same} identical` : "";
    put(this.bar.place, `${this.at + 1} of ${this.order.length}${identicalText}`);
    const numSeen = this.about.items.filter(({ id }) => this.seen.has(id)).length;
    put(this.legend, this.masked ? `${LEGEND.masked}${seenText(numSeen)}` : LEGEND.shown);
  }

  // The names of the left and the right method; null while they are masked.
  get sidesShown() {
    if (this.masked) return null;
    const { ways, reference } = this.about;
    return { left: ways[reference].name, right: ways[this.other].name };
  }

  get pair() {
    const { ways, reference } = this.about;
    return pairOf(ways[reference].name, ways[this.other].name);
  }

  /**
   * Returns the reviewer's judgement of a prompt for the current pair. While labels are hidden, judgements that were
   * made with visible labels do not count.
   * @param {string} item
   */
  rowOf(item) {
    const row = this.judgements.counting.get(unitOf({ reviewer: this.reviewer, item, pair: this.pair }));
    return row && this.masked && !row.is_masked ? undefined : row;
  }

  get item() {
    return this.about.items[this.number]?.id || "";
  }

  get draftOf() {
    return JSON.stringify([this.about.id, unitOf({ reviewer: this.reviewer, item: this.item, pair: this.pair })]);
  }

  drawJudgement() {
    const row = this.rowOf(this.item);
    const said = (row && saidOf(row, this.sidesShown)) || NOTHING;
    const sides =
      this.sidesShown ||
      (row?.left === undefined ? { left: "Left", right: "Right" } : { left: row.left, right: row.right || "" });
    this.judging.show(said, [sides.left, sides.right].map(titleOf), this.judgements.notes.get(this.draftOf));
    this.judging.disable(this.number < 0);
    this.root.dataset.judged = String(this.numJudged);
    this.showStorage();
  }

  get numJudged() {
    const { reviewer } = this;
    return [...this.judgements.counting.values()].filter((row) => row.reviewer === reviewer && row.preference).length;
  }

  // Redraws the judgement, the table and the charts after rows have changed in this window, in another one or on the
  // server.
  renew() {
    if (!this.about) return;
    this.drawJudgement();
    this.table.renew(this.lines());
    this.drawCharts();
    if (this.masked && this.hidden && !this.prompt && this.rowOf(this.hidden.id)?.left !== undefined) this.drawMasked();
  }

  /** @param {Said} said */
  async say(said) {
    const { hidden, masked, number } = this;
    if (number < 0 || (masked && !hidden)) return;
    const { reviewer, item, pair } = this;
    const known = [...this.judgements.rows.values()].filter((row) => unitOf(row) === unitOf({ reviewer, item, pair }));
    const isKnown = this.seen.has(item) || known.some((row) => !row.is_masked || row.left !== undefined);
    const row = this.rowOf(item);
    const open = masked && row?.left !== undefined ? { left: row.left, right: row.right } : this.sidesShown;
    const sides = open || { sealed: hidden?.sealed };
    const note = noteOf(this.root).value;
    const judgement = {
      ...said,
      note,
      reviewer,
      item,
      pair,
      is_masked: Boolean(masked),
      is_revealed: Boolean(masked) && isKnown,
      undoes: "",
      ...sides,
    };
    const draft = this.draftOf;
    const added = await this.judgements.add(judgement);
    this.judgements.drop(draft);
    if (masked === "each" && added.preference && added.sealed !== undefined)
      await this.trying(() => this.judgements.reveal([added]));
  }

  /**
   * @param {string} text
   * @param {boolean} isDone
   */
  noted(text, isDone) {
    this.judgements.draft(this.draftOf, text);
    if (isDone) this.leaveNote();
  }

  // Adds the typed note to the judgement, or drops the note if the judgement already has the same one.
  leaveNote() {
    const text = this.judgements.notes.get(this.draftOf);
    if (text === undefined) return;
    const row = this.rowOf(this.item);
    const said = (row && saidOf(row, this.sidesShown)) || NOTHING;
    if (isSaidAlike(said, { ...said, note: text })) this.judgements.drop(this.draftOf);
    else this.say({ ...said, note: text });
  }

  // Undoes the latest judgement and shows its prompt.
  undo() {
    const last = lastOfReviewer(this.judgements.rows.values(), this.reviewer);
    if (!last) return put(this.said, "There is nothing to undo.");
    const index = this.order.findIndex((number) => this.about.items[number].id === last.item);
    if (index >= 0 && index !== this.at) this.to(index);
    put(this.said, "Your last judgement was undone.");
    return this.judgements.add({ ...without(last, "id", "set", "time", "isSent"), ...NOTHING, undoes: last.id });
  }

  // Shows where the judgements are stored, and how many there are.
  showStorage() {
    const { judgements, masked } = this;
    const num = judgements.unsent.length;
    const storage = judgements.why || keptText(Boolean(this.server.key), Boolean(this.canKeep), num);
    const sealed = [...judgements.counting.values()].filter((row) => row.sealed !== undefined).length;
    const waits = masked ? ` ${HOLD}` : sealedText(sealed);
    put(this.keeping.where, `${storage} ${counted(this.numJudged, "pair")} judged by ${this.reviewer}.${waits}`);
    this.root.dataset.unsent = String(num);
  }

  /** @param {string} key */
  async unlock(key) {
    this.server.key = key;
    const isRight = await this.trying(() => this.judgements.pull());
    if (isRight) this.judgements.send();
    else this.server.key = "";
    store("sessionStorage", KEY, this.server.key);
    this.showStorage();
  }

  /** @param {string} form */
  save(form) {
    return this.trying(() => saveFile(this.server, this.about, this.judgements.rows.values(), form, this.other));
  }

  /** @param {File} file */
  merge(file) {
    return this.trying(async () => {
      const rows = [...this.judgements.rows.values()];
      const { fresh, conflicts } = await mergedRows(this.server, this.about, rows, await textOf(file));
      await this.judgements.take(fresh);
      this.judgements.send();
      const remark = conflicts ? `; ${counted(conflicts, "conflict")} (both judgements were kept)` : "";
      put(this.said, `${counted(fresh.length, "row")} from ${file.name} added${remark}.`);
    });
  }

  /** @param {number} way */
  openLive(way) {
    return this.trying(async () => {
      const value = await replayOf(this.server, this.about, this.number, way);
      const detail = { kind: "replay", value };
      this.root.dispatchEvent(new CustomEvent("mars-ask", { bubbles: true, detail }));
    });
  }

  /**
   * Runs an action that may be rejected, and shows the error message.
   * @param {() => Promise<unknown>} act
   */
  async trying(act) {
    try {
      await act();
      return true;
    } catch (error) {
      put(
        this.said,
        /** @type {{ sentence?: string }} */ (error).sentence || "This did not work: reload the page and try again.",
      );
      return false;
    }
  }

  // Writes the current state to the page's address.
  link() {
    /** @type {Record<string, string>} */
    const query = { review: this.about.address, at: this.item, beside: String(this.other) };
    if (this.masked) query.masked = this.masked;
    if (this.isWide && !this.masked) query.all = "1";
    Object.assign(query, linkOf(this.filter));
    this.hash = `#${new URLSearchParams(query)}`;
    if (this.root.clientWidth) history.replaceState(history.state, "", location.pathname + location.search + this.hash);
  }
}

/**
 * Mounts the view; called when the tab was opened and this script has loaded.
 * @param {HTMLElement} root
 */
export function mountReview(root) {
  Object.assign(root, { reviewView: new ReviewView(root) });
}

/** @type {(about: ReviewAbout, name: string | undefined) => number} */
const wayOf = ({ ways }, name) => ways.findIndex((way) => way.name === name);
