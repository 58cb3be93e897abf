// Stores judgements. Every row is first stored in this browser, so that it survives reloads and crashes and is visible
// in other windows. The row is then sent to the server; sending is repeated until the server acknowledges the row.
// Notes are stored at each key press.

import { newId } from "../../core/bytes.js";
import { store, stored } from "../../core/storage.js";
import { Store } from "../../core/records.js";
import { current, keepable, sendable, without } from "./rows.js";
import { pathOf } from "./server.js";

const SEEN = "mars-review-seen-";
const AGAIN = 5000; // milliseconds before a failed request is repeated
const HERE = "This browser blocks storage. Export your judgements before you close the page.";
const FULL = "This browser's storage is full. Export your judgements and continue in another browser.";

/** @type {(records: string) => { name: string, records: string, forbidden: string, full: string }} */
const kindOf = (records) => ({ name: `mars-review-${records}`, records, forbidden: HERE, full: FULL });

export class Judgements {
  /** @type {Map<string, JudgementRow>} */
  rows = new Map(); // all rows of the current set, by id
  /** @type {Map<string, JudgementRow>} */
  counting = new Map(); // the rows that count, by unit (unitOf in rows.js)
  set = "";
  address = "";
  isMasked = false;
  isSending = false;
  why = "";

  /**
   * changed: called when rows were added or changed, here or in another window.
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
   * Opens a set: loads its rows and exchanges them with the server. isMasked: whether the server must not reveal which
   * method is on which side.
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

  // Fetches the rows of other reviewers and other browsers from the server.
  async pull() {
    if (!this.server.key) return;
    const { set } = this;
    const { rows } = await this.server.json(`${pathOf(this.address)}/judgements${this.isMasked ? "?masked" : ""}`);
    const fresh = rows.filter((/** @type {Json} */ row) => !this.rows.get(row.id)?.isSent);
    await this.take(fresh.map((/** @type {Json} */ row) => this.acknowledged(row, set, row.pair)));
  }

  /**
   * Returns a row received from the server. Adds which method was on the left and on the right, if this browser has
   * stored that.
   * @param {Json} received
   * @param {string} set
   * @param {string[]} pair
   */
  acknowledged(received, set, pair) {
    return keepable({ ...received, ...sidesOf(this.rows.get(received.id)) }, set, pair);
  }

  /**
   * Stores rows that came from the server or a file, without sending them.
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

  // Returns the time for a new row: the current time or, if that is not later than the time of the last row, one
  // millisecond after that. Rows are ordered by time.
  now() {
    const after = this.last ? Date.parse(this.last) + 1 : 0;
    this.last = new Date(Math.max(Date.now(), after)).toISOString().replace("Z", "+00:00");
    return this.last;
  }

  get unsent() {
    return [...this.rows.values()].filter(({ isSent }) => !isSent).sort((a, b) => (a.time < b.time ? -1 : 1));
  }

  // Sends the unsent rows one after the other, including rows that are added meanwhile. If a request fails, sending is
  // repeated later.
  async send() {
    if (this.isSending || !this.server.key || !this.unsent.length) return;
    this.isSending = true;
    const { set, address } = this;
    try {
      for (let rows = this.unsent; rows.length; rows = set === this.set ? this.unsent : []) {
        for (const row of rows) {
          const { row: received } = await this.server.json(`${pathOf(address)}/judgements`, { row: sendable(row) });
          const acknowledged = this.acknowledged(received, set, row.pair);
          if (set === this.set) this.rows.set(row.id, acknowledged); // before storing, during which sides may be revealed
          await this.store.put(acknowledged);
        }
      }
    } catch (error) {
      if (/** @type {{ status?: number }} */ (error).status !== 401) setTimeout(() => this.send(), AGAIN);
    }
    this.isSending = false;
    this.fold();
  }

  /**
   * Asks the server which method was on which side in masked rows, and stores the answer.
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
   * Stores a note that is not yet part of a row.
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
 * Returns the fields of a row that record which method was left and which was right; {} if that is unknown.
 * @param {JudgementRow | undefined} row
 */
function sidesOf(row) {
  if (!row || row.left === undefined) return {};
  return { left: row.left, right: row.right, sealed: undefined };
}

/**
 * Parses the stored ids of prompts; returns an empty set if the text is damaged.
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

// Stores which prompts of a set were shown in this browser with visible labels. Hiding the labels later does not remove
// prompts from this list.
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
