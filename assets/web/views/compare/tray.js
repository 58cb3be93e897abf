// The tray: the visitor's pinned runs, which are stored in the browser. A pin contains one lane with the unchanged
// lines of its trace. No DOM.

import { hash, identityOf, runColours } from "../../core/colours.js";
import { headerOf } from "../../core/folds.js";
import { LIMITS } from "../../core/table.js";
import { Lane } from "../../core/trace.js";
import { forkText } from "../../core/words.js";
import { laneText } from "../../text/settings.js";
import { Store } from "../../core/records.js";

const PROMPT = 48; // maximum characters of the prompt in a run's default name

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

  // The short name of this run in texts about other runs, such as "Run 3".
  get label() {
    return `Run ${this.record.number}`;
  }

  /**
   * Applies changes of name, note and rating that were made in another window.
   * @param {PinRecord} given
   */
  renew({ name, note, rating }) {
    Object.assign(this.record, { name, note, rating });
    return this;
  }

  // The lane, built from the lines when it is first needed.
  get lane() {
    if (!this.folded) {
      this.folded = Lane.of(this.lines, { lane: this.method, title: this.name });
      this.folded.verdict = this.record.verdict;
    }
    return this.folded;
  }

  // A key that is equal for runs with the same prompt and text; "" before the lane was built.
  get textKey() {
    if (!this.folded) return "";
    const { header, ids } = this.folded;
    this.text ??= hash([...(header?.prompt_ids || []), ...ids].join());
    return this.text;
  }
}

/**
 * Returns the default name of a run: its method, settings and prompt.
 * @param {Lane} lane
 */
function nameOf(lane) {
  const method = lane.isAr ? lane.facts.title : `${lane.facts.title} ${laneText(lane)}`;
  const prompt = (headerOf(lane).prompt || "").replace(/\s+/g, " ").trim();
  return `${method} · ${prompt.length > PROMPT ? `${prompt.slice(0, PROMPT - 1)}…` : prompt}`.slice(0, LIMITS.pin.name);
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

  // Loads the pins from the browser's storage, newest first. Pins that are already loaded keep their objects, so that
  // text being typed is not lost.
  async load() {
    const records = await this.store.all();
    const known = new Map(this.pins.map((pin) => [pin.id, pin]));
    this.pins = records
      .sort((a, b) => b.pinned - a.pinned)
      .map((record) => known.get(record.id)?.renew(record) || new Pin(record));
    for (const pin of [...this.pins].reverse()) this.complete(pin);
    this.tell();
  }

  // Assigns a number and a colour to a run that has none yet.
  /** @param {Pin} pin */
  complete({ record, header, method, identity }) {
    record.number ??= 1 + Math.max(0, ...this.pins.map((pin) => pin.record.number ?? 0));
    record.colour ??= runColours.placeFor({ header, method });
    runColours.kept.set(identity, record.colour);
  }

  /**
   * Adds a run to the tray. words: its name, note, rating, verdict and isImported, where known. Returns the pin,
   * whether it is new, and a sentence if it could not be stored.
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

  // Returns the default name of a run: a branch is named after its parent, other runs after their method and settings.
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
    this.pins = this.pins.filter((known) => known !== pin);
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
let pageTray = null;

export const tray = () => (pageTray ||= new Tray());

const MOST = 6; // number of remembered lanes

/** @type {Lane[]} */
let remembered = [];

/**
 * Remembers lanes from which the visitor branched, so that a branch can be named after its parent even if the parent is
 * not pinned.
 * @param {Lane[]} lanes
 */
export function remember(lanes) {
  remembered = [...lanes, ...remembered.filter((lane) => !lanes.includes(lane))].slice(0, MOST);
}

/**
 * Describes a branch, a run that continues another run (its parent) from a different token. Returns null if the run is
 * no branch, or if its parent is neither remembered nor in `lanes`.
 * @param {Lane} lane
 * @param {Lane[]} lanes
 * @returns {Branch | null}
 */
export function branchOf(lane, lanes) {
  const { num_given: numGiven, prompt_ids: ids } = headerOf(lane);
  if (!numGiven) return null;
  const parents = [...remembered, ...lanes].filter((candidate) => isParent(candidate, ids));
  const parent = parents.find((candidate) => candidate.isAr === lane.isAr) || parents[0];
  if (!parent) return null;
  const index = ids.length - 1 - headerOf(parent).prompt_ids.length;
  return {
    parent: identityOf(headerOf(parent)),
    token: index + 1,
    taken: lane.tokenName(ids[ids.length - 1]),
    instead: parent.tokenName(parent.tokens[index].id),
  };
}

/**
 * Returns whether a run's prompt and text begin with `ids` without the last id, and continue with a different token.
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
  const parentName = parent ? parent.label : "a run that is not pinned";
  return `Branch of ${parentName} at ${forkText({ token, taken, instead })}`;
}
