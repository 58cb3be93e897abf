// Requests of the Review tab to its server: JSON over plain routes; errors are sentences.

import { MAX_SEALED } from "../../core/table.js";

const MOST_PATIENT = 5; // seconds that a request waits by itself where the server is busy
const AWAY = "The server does not answer. Check that it runs and try again.";

export class Refusal extends Error {
  /**
   * @param {string} sentence
   * @param {number} status 0 if there was no response
   */
  constructor(sentence, status) {
    super(sentence);
    this.sentence = sentence;
    this.status = status;
  }
}

export class Server {
  key = "";

  /**
   * @param {string} path
   * @param {object} [posted]
   * @returns {Promise<any>}
   */
  async json(path, posted) {
    return (await this.ask(path, posted)).json();
  }

  /**
   * @param {string} path
   * @param {object} [posted]
   */
  async text(path, posted) {
    return (await this.ask(path, posted)).text();
  }

  /**
   * Where the server is busy for a moment (429), the request is sent once more.
   * @param {string} path
   * @param {object} [posted]
   */
  async ask(path, posted) {
    /** @type {Record<string, string>} */
    const headers = this.key ? { "x-review-key": encodeURIComponent(this.key) } : {};
    const sent = posted
      ? { method: "POST", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(posted) }
      : { headers };
    const fetched = () =>
      fetch(`review/${path}`, sent).catch(() => {
        throw new Refusal(AWAY, 0);
      });
    let answer = await fetched();
    const seconds = Number(answer.headers.get("retry-after") || 1);
    if (answer.status === 429 && seconds <= MOST_PATIENT) {
      await new Promise((done) => setTimeout(done, 1000 * seconds));
      answer = await fetched();
    }
    if (answer.ok) return answer;
    const told = await answer.json().catch(() => ({}));
    throw new Refusal(typeof told.detail === "string" ? told.detail : AWAY, answer.status);
  }

  /**
   * Returns a visitor's own set, sealed for storage in the browser; if it is too large, "" and the reason.
   * @param {string} name
   * @returns {Promise<{ sealed: string, why: string }>}
   */
  async sealed(name) {
    try {
      const { sealed } = await this.json(`${pathOf(name)}/sealed`);
      return { sealed, why: "" };
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 400) throw error;
      return { sealed: "", why: error.sentence };
    }
  }

  /**
   * Sends a set that this browser stored. A set that is too large was stored by an earlier version and is not sent: the
   * server may still have it.
   * @param {string} sealed
   */
  async bring(sealed) {
    if (sealed && sealed.length <= MAX_SEALED) await this.json("sets", { sealed });
  }
}

/** @type {(name: string) => string} */
export const pathOf = (name) => `sets/${encodeURIComponent(name)}`;

/**
 * Prompts of a set, each requested once; those next to the current one are fetched ahead.
 * @template P
 */
export class Ahead {
  /** @type {Map<number, Promise<P>>} */
  asked = new Map();

  /** @param {(number: number) => Promise<P>} ask */
  constructor(ask) {
    this.ask = ask;
  }

  /** @param {number} number */
  get(number) {
    let found = this.asked.get(number);
    if (!found) {
      found = this.ask(number);
      this.asked.set(number, found);
      found.catch(() => this.asked.delete(number));
    }
    return found;
  }

  /** @param {number[]} numbers */
  fetch(numbers) {
    for (const number of numbers) this.get(number).catch(() => {});
  }
}
