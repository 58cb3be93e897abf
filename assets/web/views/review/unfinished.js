// Stores an unfinished set in this browser and offers to continue it, so that a reload or a server restart loses
// nothing. The record contains the request and the answers so far, sealed by the server.

import { button, make, put } from "../../core/dom.js";
import { counted } from "../../core/words.js";
import { Refusal } from "./server.js";

const LEAST = 5000; // minimum milliseconds between two fetches of finished answers
const LARGE = 200; // number of answers above which a set is too large to be fetched repeatedly

/**
 * Describes the state of an unfinished set, and how to continue it.
 * @param {OwnSet} set
 * @param {ReviewProgress["state"]} state
 */
export function leftText({ name, made = 0, of = 0, sealed }, state) {
  const why =
    state === "gone"
      ? `The server no longer has “${name}”, probably because it was restarted`
      : `“${name}” is no longer being created`;
  const saved = `${made} of ${counted(of, "answer")} are saved in this browser`;
  return sealed
    ? `${why}; ${saved}. Finish the set.`
    : `${why}, and no answer was saved in this browser. Rebuild the set.`;
}

/** @param {OwnSet} set */
const nameOf = ({ sealed }) => (sealed ? "Finish" : "Rebuild");

export class Unfinished {
  /** @type {OwnSet | null} */
  set = null;
  fetchedAt = -LEAST; // time of the latest fetch

  /**
   * @param {ReviewServer} server
   * @param {ReviewSets} store
   * @param {(asked: MakingAsked | { set: string }) => void} begin requests decoding of the set
   */
  constructor(server, store, begin) {
    this.server = server;
    this.store = store;
    this.begin = begin;
    this.said = make("p", "rw-hint");
    this.rest = button("rw-rest", "Finish", () => this.resume());
    this.drop = button("rw-drop", "Discard", () => this.forget());
    this.element = make("div", { class: "rw-unfinished", hidden: "" }, this.said, this.rest, this.drop);
  }

  /** Loads the unfinished set of an earlier visit, if any. */
  async last() {
    this.set ||= (await this.store.all()).find(({ asked }) => asked) || null;
    return this.set;
  }

  /**
   * Stores a set after its decoding has started, in place of an earlier unfinished one. A continued set is already
   * stored.
   * @param {string} id the set's name on the server
   * @param {MakingAsked | { set: string }} asked
   */
  async started(id, asked) {
    this.element.hidden = true;
    if ("set" in asked) return;
    await this.forget();
    this.set = { id, name: asked.name, sealed: "", asked };
    await this.store.put(this.set);
  }

  /** @param {ReviewProgress} progress */
  async keep({ num_done, num_all, state }) {
    const { set } = this;
    if (!set || num_done <= (set.made || 0) || num_all > LARGE) return;
    if (state === "making" && performance.now() - this.fetchedAt < LEAST) return;
    this.fetchedAt = performance.now();
    const { sealed } = await this.server.sealed(set.id);
    if (!sealed) return;
    Object.assign(set, { sealed, made: num_done, of: num_all });
    await this.store.put(set);
  }

  /** @param {ReviewProgress["state"]} state */
  offer(state) {
    if (!this.set) return;
    put(this.said, leftText(this.set, state));
    put(this.rest, nameOf(this.set));
    this.element.hidden = false;
  }

  // Continues the set. Sends the stored answers to the server, which may have lost them. If the server cannot open
  // them, they are dropped.
  async resume() {
    const { set } = this;
    if (!set?.asked) return;
    try {
      await this.server.bring(set.sealed);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (error.status === 400) Object.assign(set, { sealed: "", made: 0 });
      put(this.said, error.sentence);
      put(this.rest, nameOf(set));
      return;
    }
    this.begin(set.sealed ? { set: set.id } : set.asked);
  }

  // Clears the current set, because it is complete. The set's record stays in the store, like those of the visitor's
  // other sets.
  done() {
    this.set = null;
  }

  async forget() {
    const { set } = this;
    this.set = null;
    this.element.hidden = true;
    if (set) await this.store.remove(set.id);
  }
}
