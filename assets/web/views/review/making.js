// Makes the answers of a set on the page, one run after the other, through the endpoint `traces` of the API, so that
// these runs wait in the same queue as all others. Each answer is stored when it ends.

import { textOf } from "../../core/files.js";
import { REVIEW } from "../../core/table.js";
import { answerOfLines, compareWithAr, isMade, linesOf, noAnswer } from "./sets.js";

export const LOST = "The connection was lost. Press Continue to make the missing answers.";
const REFUSED = "The server did not accept the run. Press Continue to try again.";
const MOST_FAULTS = 3; // refused runs in a row after which making stops
const API = "gradio_api/call";

// Runs a prompt with a method, and returns the lines of its trace. Throws an error whose `sentence` is the server's
// reason, or an error without one if the connection was lost.
/** @type {(item: ReviewItem, method: ReviewMethod, signal: AbortSignal) => Promise<string[]>} */
async function traceOf({ prompt, system }, { checkpoint, settings }, signal) {
  const values = { ...settings, method: settings?.method, prompt, system, checkpoint };
  const headers = { "content-type": "application/json" };
  const posted = await fetch(`${API}/v2/traces`, { method: "POST", headers, body: JSON.stringify(values), signal });
  const { event_id: id, detail } = await posted.json();
  if (!posted.ok || !id) throw Object.assign(new Error("refused"), { sentence: detail || REFUSED });
  const streamed = await fetch(`${API}/traces/${id}`, { signal });
  if (!streamed.body) throw new Error("lost");
  let [event, last] = ["", ""];
  for await (const line of linesOf(streamed.body)) {
    if (line.startsWith("event: ")) event = line.slice(7);
    else if (line.startsWith("data: ")) last = line.slice(6);
    if (line || !event) continue;
    if (event === "error") throw Object.assign(new Error("failed"), { sentence: JSON.parse(last)?.error || REFUSED });
    if (event === "complete") return JSON.parse(last)[0];
  }
  throw new Error("lost");
}

/** @param {ReviewSet} set */
export const missingOf = ({ items }) =>
  items.reduce((num, { answers }) => num + answers.filter((answer) => !isMade(answer)).length, 0);

// The making of one set at a time.
export class Making {
  /** @type {ReviewSet | null} */
  set = null;
  /** @type {AbortController | null} */
  control = null;

  /** @param {(set: ReviewSet, item: ReviewItem) => Promise<void>} made called after each answer, to store and draw it */
  constructor(made) {
    this.made = made;
  }

  // Makes the missing answers of a set. Returns "" or one sentence about why it ended early.
  /** @param {ReviewSet} set */
  async run(set) {
    this.control?.abort();
    const control = new AbortController();
    Object.assign(this, { set, control });
    try {
      return await this.work(set, control.signal);
    } catch (error) {
      if (control.signal.aborted) return "Stopped. Press Continue to make the missing answers.";
      return /** @type {{ sentence?: string }} */ (error).sentence ?? LOST;
    } finally {
      if (this.control === control) Object.assign(this, { set: null, control: null });
    }
  }

  /** @type {(set: ReviewSet, signal: AbortSignal) => Promise<string>} */
  async work(set, signal) {
    const { methods } = set.header;
    let numFaults = 0;
    for (const item of set.items) {
      for (const [i, method] of methods.entries()) {
        if (isMade(item.answers[i])) continue;
        try {
          item.answers[i] = answerOfLines(await traceOf(item, method, signal));
          numFaults = 0;
        } catch (error) {
          const { sentence, message } = /** @type {Error & { sentence?: string }} */ (error);
          if (!sentence || message === "refused" || (numFaults += 1) === MOST_FAULTS) throw error;
          item.answers[i] = noAnswer(sentence);
        }
        compareWithAr(item, methods);
        await this.made(set, item);
      }
    }
    return missingOf(set) ? "Some runs failed; their answers say why. Press Continue to try again." : "";
  }
}

/** @typedef {{ prompt: string, system?: string, id?: string }} Asked */

// Returns the new set that the form describes, or throws an error whose `sentence` says what to change. parts: elements
// of review.html. read: parses prompts on the server.
/** @type {(parts: Record<string, any>, read: (text: string, name: string) => Promise<{ items?: Asked[], error?: string }>) => Promise<ReviewSet>} */
export async function setOf(parts, read) {
  /** @type {(isRight: boolean, sentence?: string) => void} */
  const check = (isRight, sentence) => {
    if (!isRight) throw Object.assign(new Error("refused"), { sentence });
  };
  check(parts.form.checkValidity(), "One of the numbers is out of range.");
  const [size, limit] = [parts.size.valueAsNumber, parts.limit.valueAsNumber];
  /** @type {(kind: string) => Partial<Settings>} */
  const mars = (kind) => ({
    ...{ method: "mars", lossless: kind === "lossless", tau: parts[kind].valueAsNumber },
    ...{ block_size: size, max_new_tokens: limit, lookup: false },
  });
  const all = [
    { kind: "lossless", name: `lossless,tau=${parts.lossless.value},B=${size}`, settings: mars("lossless") },
    { kind: "unverified", name: `tau=${parts.unverified.value},B=${size}`, settings: mars("unverified") },
    { kind: "ar", name: "ar", settings: { method: "ar", max_new_tokens: limit } },
  ];
  const chosen = all.filter(({ kind }) => parts[`has-${kind}`].checked);
  check(chosen.length > 1, "Choose at least two methods.");
  const [file] = parts["prompts-file"].files;
  const text = file ? await textOf(file) : parts.prompts.value;
  const { items = [], error } = await read(text, file?.name ?? "Your list");
  check(!error, error);
  check(items.length <= REVIEW.making, `On the page, a set has at most ${REVIEW.making} prompts (this has ${items.length}). Use the command for more.`); // prettier-ignore
  const methods = chosen.map(({ name, settings }) => ({ name, settings, checkpoint: parts.checkpoint.value }));
  return newSet(items, /** @type {ReviewMethod[]} */ (methods), file?.name ?? `Set of ${items.length}`);
}

/** @type {(prompts: Asked[], methods: ReviewMethod[], name: string) => ReviewSet} */
function newSet(prompts, methods, name) {
  const id = `page-${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
  const made = { date: new Date().toISOString(), by: "page" };
  const items = prompts.map(({ prompt, system = "", id: own = "" }, i) => ({
    ...{ id: own || String(i + 1), prompt, system, category: "", reference: "", turns: [] },
    answers: methods.map(() => null),
  }));
  return { id, header: { id, name: name.slice(0, REVIEW.name), methods, made }, items };
}
