// Storage of judgements: all of them in this browser, and on the server those that it has acknowledged. A row is first
// stored here, so that reloads, crashes and other windows lose nothing; rows that the server has not acknowledged are
// sent again. Notes are stored at each key press.

import { newId } from "../../core/bytes.js";
import { store, stored } from "../../core/storage.js";
import { Store } from "../../core/records.js";
import { current, keepable, sendable, without } from "./rows.js";
import { pathOf } from "./server.js";

const SEEN = "mars-review-seen-";
const AGAIN = 5000; // milliseconds before a failed request is repeated
const HERE = "This browser does not let the page store anything. Export before you close it.";
const FULL = "This browser's storage is full. Export your judgements and continue in another browser.";

/** @type {(what: string) => { name: string, records: string, forbidden: string, full: string }} */
const kindOf = (what) => ({ name: `mars-review-${what}`, records: what, forbidden: HERE, full: FULL });

export class Judgements {
  /** @type {Map<string, JudgementRow>} */
  rows = new Map(); // of the current set
  /** @type {Map<string, JudgementRow>} */
  counting = new Map(); // by unit
  set = "";
  address = "";
  isMasked = false;
  isSending = false;
  why = "";

  /**
   * changed(): called when rows were added or changed, also in another window.
   * @param {ReviewServer} server
   * @param {() => void} changed
   */
  constructor(server, changed) {
    this.server = server;
    this.changed = changed;
    /** @type {Store<JudgementRow>} */
    this.store = new Store(undefined, kindOf("rows"));
    /** @type {Store<NoteDraft>} */
    this.drafts = new Store(undefined, kindOf("drafts"));
    /** @type {Store<OwnSet>} */
    this.sets = new Store(undefined, kindOf("sets"));
    /** @type {Map<string, string>} */
    this.notes = new Map();
    this.last = "";
    this.store.watch(() => this.reload());
  }

  /**
   * Opens a set: loads its rows and exchanges them with the server. isMasked: whether the server must not reveal sides.
   * @param {{ id: string, address: string }} set
   * @param {boolean} isMasked
   */
  async open({ id, address }, isMasked) {
    Object.assign(this, { set: id, address, isMasked });
    this.notes = new Map((await this.drafts.all()).map((draft) => [draft.id, draft.note]));
    await this.reload();
    this.send();
    await this.pull();
  }

  async reload() {
    const { set } = this;
    const all = await this.store.all();
    if (set !== this.set) return;
    this.rows = new Map(all.filter((row) => row.set === set).map((row) => [row.id, row]));
    this.fold();
  }

  fold() {
    this.counting = current(this.rows.values());
    for (const { time } of this.rows.values()) if (time > this.last) this.last = time;
    this.changed();
  }

  // Fetches rows that the server has from other reviewers and browsers.
  async pull() {
    if (!this.server.key) return;
    const { set } = this;
    const { rows } = await this.server.json(`${pathOf(this.address)}/judgements${this.isMasked ? "?masked" : ""}`);
    const fresh = rows.filter((/** @type {Json} */ told) => !this.rows.get(told.id)?.isSent);
    await this.take(fresh.map((/** @type {Json} */ told) => this.acknowledged(told, set, told.pair)));
  }

  /**
   * Returns a server's row with what is known here of its sides.
   * @param {Json} told
   * @param {string} set
   * @param {string[]} pair
   */
  acknowledged(told, set, pair) {
    return keepable({ ...told, ...sidesOf(this.rows.get(told.id)) }, set, pair);
  }

  /**
   * Stores rows from elsewhere unchanged.
   * @param {JudgementRow[]} rows
   */
  async take(rows) {
    for (const row of rows) {
      this.rows.set(row.id, row);
      this.why = await this.store.put(row);
    }
    if (rows.length) this.fold();
  }

  /**
   * Stores a new row, then sends it to the server.
   * @param {Omit<JudgementRow, "id" | "set" | "isSent" | "time">} said
   */
  async add(said) {
    const row = { ...said, id: newId(), set: this.set, isSent: false, time: this.now() };
    this.rows.set(row.id, row);
    this.fold();
    this.why = await this.store.put(row);
    this.send();
    return row;
  }

  // Returns a time later than that of all known rows, since rows are ordered by time.
  now() {
    const after = this.last ? Date.parse(this.last) + 1 : 0;
    this.last = new Date(Math.max(Date.now(), after)).toISOString().replace("Z", "+00:00");
    return this.last;
  }

  get unsent() {
    return [...this.rows.values()].filter(({ isSent }) => !isSent).sort((a, b) => (a.time < b.time ? -1 : 1));
  }

  // Sends rows one after the other in order, including those added in the meantime. A failed row stays and is sent again.
  async send() {
    if (this.isSending || !this.server.key || !this.unsent.length) return;
    this.isSending = true;
    const { set, address } = this;
    try {
      for (let rows = this.unsent; rows.length; rows = set === this.set ? this.unsent : []) {
        for (const row of rows) {
          const { row: told } = await this.server.json(`${pathOf(address)}/judgements`, { row: sendable(row) });
          const kept = this.acknowledged(told, set, row.pair);
          if (set === this.set) this.rows.set(row.id, kept); // at once: sides may be revealed while it is being stored
          await this.store.put(kept);
        }
      }
    } catch (error) {
      if (/** @type {{ status?: number }} */ (error).status !== 401) setTimeout(() => this.send(), AGAIN);
    }
    this.isSending = false;
    this.fold();
  }

  /**
   * Fetches the sides of masked rows from the server and stores them.
   * @param {JudgementRow[]} rows
   */
  async reveal(rows) {
    const sealed = rows.filter((row) => row.sealed !== undefined);
    if (!sealed.length) return;
    const texts = sealed.map((row) => row.sealed);
    const { sides } = await this.server.json(`${pathOf(this.address)}/reveal`, { sealed: texts });
    const open = sealed.map((row, i) => {
      return { ...without(this.rows.get(row.id) || row, "sealed"), ...sides[i] };
    });
    await this.take(open);
  }

  /**
   * Stores an unfinished note until it becomes part of a row.
   * @param {string} unit
   * @param {string} note
   */
  async draft(unit, note) {
    this.notes.set(unit, note);
    this.why = await this.drafts.put({ id: unit, note });
  }

  /** @param {string} unit */
  async drop(unit) {
    if (!this.notes.delete(unit)) return;
    await this.drafts.remove(unit);
  }
}

/**
 * Returns what is known of a row's sides.
 * @param {JudgementRow | undefined} row
 */
function sidesOf(row) {
  if (!row || row.left === undefined) return {};
  return { left: row.left, right: row.right, sealed: undefined };
}

/**
 * Returns the prompts in a stored text; none if it is damaged.
 * @param {string} text
 * @returns {Set<string>}
 */
function itemsOf(text) {
  try {
    return new Set(JSON.parse(text || "[]"));
  } catch {
    return new Set();
  }
}

// Prompts of a set that were ever read in this browser with their sides visible; masking them later does not undo that.
export class Seen {
  set = "";
  /** @type {Set<string>} */
  items = new Set();

  /** @param {string} set */
  open(set) {
    this.set = set;
    this.items = itemsOf(stored("localStorage", `${SEEN}${set}`));
  }

  /** @param {string} item */
  has(item) {
    return this.items.has(item);
  }

  /** @param {string} item */
  add(item) {
    if (this.items.has(item)) return;
    this.items.add(item);
    store("localStorage", `${SEEN}${this.set}`, JSON.stringify([...this.items]));
  }
}
