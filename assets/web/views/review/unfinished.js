// An unfinished set stored in this browser, so that a reload or a server restart loses nothing: the request, and the
// answers so far, sealed by the server. Offers to continue it.

import { button, make, put } from "../../core/dom.js";
import { counted } from "../../core/words.js";
import { Refusal } from "./server.js";

const LEAST = 5000; // milliseconds between two fetches of answers for storage
const LARGE = 200; // answers of a set that is too large to be fetched repeatedly

/**
 * Describes its state and what can be done.
 * @param {OwnSet} set
 * @param {ReviewProgress["state"]} state
 */
export function leftText({ name, made = 0, of = 0, sealed }, state) {
  const why =
    state === "gone"
      ? `The server no longer has “${name}”, probably because it was restarted`
      : `“${name}” is no longer being created`;
  const have = `${made} of ${counted(of, "answer")} are kept in this browser`;
  return sealed ? `${why}; ${have}. Finish the set.` : `${why}, and no answer was stored here. Rebuild it.`;
}

/** @param {OwnSet} set */
const nameOf = ({ sealed }) => (sealed ? "Finish" : "Rebuild");

export class Unfinished {
  /** @type {OwnSet | null} */
  set = null;
  kept = -LEAST; // time of the latest fetch

  /**
   * @param {ReviewServer} server
   * @param {ReviewSets} store
   * @param {(asked: MakingAsked | { set: string }) => void} begin starts decoding the request
   */
  constructor(server, store, begin) {
    this.server = server;
    this.store = store;
    this.begin = begin;
    this.said = make("p", "rw-hint");
    this.rest = button("rw-rest", "Finish", () => this.goOn());
    this.drop = button("rw-drop", "Discard", () => this.forget());
    this.element = make("div", { class: "rw-unfinished", hidden: "" }, this.said, this.rest, this.drop);
  }

  /** Loads the unfinished set of an earlier visit, if any. */
  async last() {
    this.set ||= (await this.store.all()).find(({ asked }) => asked) || null;
    return this.set;
  }

  /**
   * Stores a set that is being made, new or continued; replaces an earlier unfinished one.
   * @param {string} id the server's name for it
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
    if (state === "making" && performance.now() - this.kept < LEAST) return;
    this.kept = performance.now();
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

  // Sends stored answers back to a server that has lost them. If it cannot open them, they are dropped.
  async goOn() {
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

  // Stores the complete set like any other.
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
