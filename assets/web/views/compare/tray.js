// The pinned runs of this visitor: what they are, and how they change. A pin is one lane, so one trace.
// Knows the store and the fold of a trace; no DOM. The lines of a pin are the trace's own and never change.

import { hash, identityOf, runColours } from "../../core/colours.js";
import { headerOf } from "../../core/folds.js";
import { LIMITS } from "../../core/table.js";
import { Lane } from "../../core/trace.js";
import { forkText } from "../../core/words.js";
import { laneText } from "../../text/card.js";
import { Store } from "./store.js";

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
    const { header, ids } = this.folded;
    this.text ??= hash([...(header?.prompt_ids || []), ...ids].join());
    return this.text;
  }
}

/**
 * What a run is called until its owner calls it otherwise.
 * @param {Lane} lane
 */
function nameOf(lane) {
  const how = lane.isAr ? lane.facts.title : `${lane.facts.title} ${laneText(lane)}`;
  const prompt = (headerOf(lane).prompt || "").replace(/\s+/g, " ").trim();
  return `${how} · ${prompt.length > PROMPT ? `${prompt.slice(0, PROMPT - 1)}…` : prompt}`.slice(0, LIMITS.pin.name);
}

/** @type {(a: string[], b: string[]) => boolean} */
const isSame = (a, b) => a.length === b.length && a.every((line, i) => line === b[i]);

export class Tray {
  /** @type {Pin[]} */
  pins = [];
  /** @type {Promise<void> | undefined} */
  loading;
  /** @type {Set<() => void>} */
  listeners = new Set();

  /** @param {Store<PinRecord>} [store] */
  constructor(store = new Store()) {
    this.store = store;
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

  // A run keeps its number, and its colour.
  /** @param {Pin} pin */
  complete({ record, header, method, identity }) {
    record.number ??= 1 + Math.max(0, ...this.pins.map((pin) => pin.record.number ?? 0));
    record.colour ??= runColours.placeFor({ header, method });
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
      id: `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`,
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
    return branch ? branchName(branch, parent || undefined).slice(0, LIMITS.pin.name) : nameOf(lane);
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

const MOST = 6; // lanes that are remembered

/** @type {Lane[]} */
let remembered = [];

// A branch is a run that was made to go on from a token of another. A lane of the page that was branched from is remembered,
// for it need not be pinned.
//
/** @param {Lane[]} lanes */
export function remember(lanes) {
  remembered = [...lanes, ...remembered.filter((lane) => !lanes.includes(lane))].slice(0, MOST);
}

/**
 * Null for a run that is no branch, or whose parent nobody knows: neither the page nor `lanes`.
 * @param {Lane} lane
 * @param {Lane[]} lanes
 * @returns {Branch | null}
 */
export function branchOf(lane, lanes) {
  const { num_given: numGiven, prompt_ids: ids } = headerOf(lane);
  if (!numGiven) return null;
  const parents = [...remembered, ...lanes].filter((each) => isParent(each, ids));
  const parent = parents.find((each) => each.isAr === lane.isAr) || parents[0];
  if (!parent) return null;
  const place = ids.length - 1 - headerOf(parent).prompt_ids.length;
  return {
    parent: identityOf(headerOf(parent)),
    token: place + 1,
    taken: lane.tokenName(ids[ids.length - 1]),
    instead: parent.tokenName(parent.tokens[place].id),
  };
}

/**
 * Whether a run goes with `ids` up to their last one, and there another way.
 * @param {Lane} lane
 * @param {number[]} ids
 */
function isParent(lane, ids) {
  const prompt = headerOf(lane).prompt_ids;
  const path = [...prompt, ...lane.ids];
  const last = ids.length - 1;
  return last >= prompt.length && last < path.length && path[last] !== ids[last] && ids.every((id, i) => i === last || id === path[i]); // prettier-ignore
}

/**
 * @param {Branch} given
 * @param {Pin | undefined} parent
 */
export function branchName({ token, taken, instead }, parent) {
  const of = parent ? parent.label : "a run that is not pinned";
  return `Branch of ${of} at ${forkText({ token, taken, instead })}`;
}
