// Requests of the Review tab to the server, with JSON bodies. A failed request throws a Refusal, whose sentence can be
// shown to the visitor.

import { MAX_SEALED } from "../../core/table.js";

const MOST_PATIENT = 5; // maximum seconds to wait before a request to a busy server is repeated
const AWAY = "The server does not respond. Check that it is running, then try again.";

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
   * Sends a request and returns the response. If the server is busy (status 429), the request is repeated once. Throws
   * a Refusal for any other error.
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
    const { detail } = await answer.json().catch(() => ({}));
    throw new Refusal(typeof detail === "string" ? detail : AWAY, answer.status);
  }

  /**
   * Returns a visitor's set, sealed by the server for storage in the browser. If the set is too large, returns "" and
   * the reason.
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
   * Sends the server a set that is stored in this browser. A set that is too large is not sent.
   * @param {string} sealed
   */
  async bring(sealed) {
    if (sealed && sealed.length <= MAX_SEALED) await this.json("sets", { sealed });
  }
}

/** @type {(name: string) => string} */
export const pathOf = (name) => `sets/${encodeURIComponent(name)}`;

/**
 * Caches the prompts of a set, so that each prompt is requested only once, and requests prompts before they are needed
 * (`fetch`).
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
    let requested = this.asked.get(number);
    if (!requested) {
      requested = this.ask(number);
      this.asked.set(number, requested);
      requested.catch(() => this.asked.delete(number));
    }
    return requested;
  }

  /** @param {number[]} numbers */
  fetch(numbers) {
    for (const number of numbers) this.get(number).catch(() => {});
  }
}
