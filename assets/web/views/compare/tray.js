// The pinned runs of this visitor: what they are, and how they change. A pin is one lane, so one trace.
// Knows the store and the fold of a trace; no DOM. The lines of a pin are the trace's own and never change.

import { hash, identityOf, runColours } from "../../core/colours.js";
import { headerOf } from "../../core/folds.js";
import { Lane } from "../../core/trace.js";
import { settingsText } from "../../text/card.js";
import { branchName, branchOf } from "./branches.js";
import { Store } from "./store.js";

const MOST_NAME = 120;
const PROMPT = 48; // characters of the prompt in a name

export class Pin {
  /** @type {Lane | null} */
  folded;

  /** @type {string | undefined} */
  text;

  /** @param {PinRecord} record */
  constructor(record) {
    this.record = record;
    /** @type {HeaderEvent} */
    this.header = JSON.parse(record.lines[0]);
    this.identity = identityOf(this.header);
    this.method = this.header.settings.method;
  }

  get id() {
    return this.record.id;
  }
  get name() {
    return this.record.name;
  }
  get lines() {
    return this.record.lines;
  }

  // What other runs call it, whatever its owner does.
  get label() {
    return `Run ${this.record.number}`;
  }

  /**
   * Words that were changed elsewhere; the lines are the same.
   * @param {PinRecord} given
   */
  renew({ name, note, rating }) {
    Object.assign(this.record, { name, note, rating });
    return this;
  }

  // The whole lane, folded once.
  get lane() {
    if (!this.folded) {
      this.folded = Lane.of(this.lines, { lane: this.method, title: this.name });
      this.folded.verdict = this.record.verdict;
    }
    return this.folded;
  }

  // The same for runs that wrote the same text to the same prompt; "" until the lane was folded.
  get textKey() {
    if (!this.folded) return "";
    const { header, tokens } = this.folded;
    this.text ??= hash([...(header?.prompt_ids || []), ...tokens.map(({ id }) => id)].join());
    return this.text;
  }
}

/**
 * What a run is called until its owner calls it otherwise.
 * @param {Lane} lane
 */
function nameOf(lane) {
  const { settings } = lane;
  const how = lane.isAr
    ? lane.facts.title
    : `${lane.facts.title} ${settingsText(settings, lane.steps.at(-1)?.blockSize)}`;
  const prompt = (headerOf(lane).prompt || "").replace(/\s+/g, " ").trim();
  return `${how} · ${prompt.length > PROMPT ? `${prompt.slice(0, PROMPT - 1)}…` : prompt}`.slice(0, MOST_NAME);
}

/**
 * @param {string[]} a
 * @param {string[]} b
 */
const isSame = (a, b) => a.length === b.length && a.every((line, i) => line === b[i]);
const newId = () => `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;

export class Tray {
  /** @type {Pin[]} */
  pins;
  /** @type {Promise<void> | undefined} */
  loading;
  /** @type {Set<() => void>} */
  listeners;

  /** @param {Store} [store] */
  constructor(store = new Store()) {
    this.store = store;
    this.pins = [];
    this.listeners = new Set();
  }

  begin() {
    return (this.loading ||= this.load());
  }

  // Newest first. What is known already keeps its object, so that nothing being typed is lost.
  async load() {
    const records = await this.store.all();
    const known = new Map(this.pins.map((pin) => [pin.id, pin]));
    this.pins = records
      .sort((a, b) => b.pinned - a.pinned)
      .map((record) => known.get(record.id)?.renew(record) || new Pin(record));
    for (const pin of [...this.pins].reverse()) this.complete(pin);
    this.tell();
  }

  // A run keeps its number, and the colour that it wears when it is pinned.
  /** @param {Pin} pin */
  complete({ record, header, method, identity }) {
    record.number ??= 1 + Math.max(0, ...this.pins.map((pin) => pin.record.number ?? 0));
    record.colour ??= runColours.placeOf({ header, method });
    runColours.kept.set(identity, record.colour);
  }

  /**
   * A run into the tray; `words` (name, note, rating, verdict) and isImported where they are known.
   * Answers {pin, isNew, sentence}: the sentence says what is not as it should be.
   * @param {string[]} lines
   * @param {Partial<PinRecord>} [words]
   */
  async add(lines, words = {}) {
    await this.begin();
    const same = this.pins.find((pin) => isSame(pin.lines, lines));
    if (same) return { pin: same, isNew: false, sentence: "" };
    const record = {
      id: newId(),
      pinned: Date.now(),
      name: words.name || "",
      note: words.note || "",
      rating: words.rating || 0,
      verdict: words.verdict ?? null,
      isImported: Boolean(words.isImported),
      lines,
    };
    const pin = new Pin(record);
    this.complete(pin);
    record.name ||= this.nameOf(pin.lane);
    this.pins.unshift(pin);
    const sentence = await this.store.put(record);
    this.tell();
    return { pin, isNew: true, sentence };
  }

  // A branch is called after its parent, any other run by what it is.
  /** @param {Lane} lane */
  nameOf(lane) {
    const branch = headerOf(lane).num_given ? branchOf(lane, this.pins.map((pin) => pin.lane)) : null; // prettier-ignore
    const parent = branch && this.pins.find((pin) => pin.identity === branch.parent);
    return branch ? branchName(branch, parent || undefined).slice(0, MOST_NAME) : nameOf(lane);
  }

  /**
   * @param {Pin} pin
   * @param {Partial<PinRecord>} changes
   */
  async change(pin, changes) {
    Object.assign(pin.record, changes);
    return this.store.put(pin.record);
  }

  /** @param {Pin} pin */
  async remove(pin) {
    this.pins = this.pins.filter((each) => each !== pin);
    this.tell();
    await this.store.remove(pin.id);
  }

  /** @param {Pin} pin */
  async restore(pin) {
    this.pins = [...this.pins, pin].sort((a, b) => b.record.pinned - a.record.pinned);
    this.tell();
    return this.store.put(pin.record);
  }

  /** @param {() => void} listener */
  listen(listener) {
    this.listeners.add(listener);
    this.store.watch(() => this.load());
    this.begin();
  }

  tell() {
    runColours.keep(new Map(this.pins.map(({ identity, record }) => [identity, record.colour ?? 0])));
    for (const listener of this.listeners) listener();
  }
}

/** @type {Tray | null} */
let kept = null;

// The one tray of this page.
export const tray = () => (kept ||= new Tray());
