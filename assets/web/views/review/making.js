// Makes the answers of a set on the page, one run after the other, through the endpoint `traces` of the API, so that
// these runs wait in the same queue as all others. Each answer is stored when it ends.

import { button, make } from "../../core/dom.js";
import { textOf } from "../../core/files.js";
import { REVIEW } from "../../core/table.js";
import { answerOfLines, compareWithAr, isMade, noAnswer } from "./sets.js";

export const LOST = "The connection was lost. Press Continue to make the missing answers.";
const REFUSED = "The server did not accept the run. Press Continue to try again.";
const MOST_FAULTS = 3; // refused runs in a row after which making stops
const API = "gradio_api/call";

/**
 * Runs a prompt with a method, and returns the lines of its trace. Throws an error whose `sentence` is the server's
 * reason, or an error without one if the connection was lost.
 * @param {ReviewItem} item
 * @param {ReviewMethod} method
 * @param {AbortSignal} signal
 * @returns {Promise<string[]>}
 */
async function traceOf({ prompt, system }, { checkpoint, settings }, signal) {
  const values = { ...settings, method: settings?.method, prompt, system, checkpoint };
  const headers = { "content-type": "application/json" };
  const posted = await fetch(`${API}/v2/traces`, { method: "POST", headers, body: JSON.stringify(values), signal });
  const { event_id: id, detail } = await posted.json();
  if (!posted.ok || !id) throw Object.assign(new Error("refused"), { sentence: detail || REFUSED });
  const streamed = await fetch(`${API}/traces/${id}`, { signal });
  if (!streamed.body) throw new Error("lost");
  let [event, last] = ["", ""];
  for await (const line of eventLines(streamed.body)) {
    if (line.startsWith("event: ")) event = line.slice(7);
    else if (line.startsWith("data: ")) last = line.slice(6);
    if (line || !event) continue;
    if (event === "error") throw Object.assign(new Error("failed"), { sentence: JSON.parse(last)?.error || REFUSED });
    if (event === "complete") return JSON.parse(last)[0];
  }
  throw new Error("lost");
}

/** @param {ReadableStream<Uint8Array>} body */
async function* eventLines(body) {
  const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = `${rest}${value}`.split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
  }
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

  stop() {
    this.control?.abort();
  }

  /**
   * Makes the missing answers of a set. Returns "" or one sentence about why it ended early.
   * @param {ReviewSet} set
   */
  async run(set) {
    this.stop();
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

  /**
   * @param {ReviewSet} set
   * @param {AbortSignal} signal
   */
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

/**
 * Builds the form of a new set. read: parses a file of prompts on the server. made: called with the new set.
 * @param {string[]} checkpoints
 * @param {(text: string, name: string) => Promise<{ items?: { prompt: string, system?: string, id?: string }[], error?: string }>} read
 * @param {(set: ReviewSet) => void} made
 */
export function makingForm(checkpoints, read, made) {
  const name = "Prompts, one per line";
  const prompts = make("textarea", { rows: 6, "aria-label": name, placeholder: name });
  const file = make("input", { type: "file", "aria-label": "File of prompts", accept: ".txt,.csv,.tsv,.jsonl" });
  const checkpoint = make("select", "", ...checkpoints.map((option) => make("option", { value: option }, option)));
  /** @type {(label: string, attributes: Attributes) => [HTMLInputElement, HTMLElement]} */
  const field = (label, attributes) => {
    const input = make("input", attributes);
    return [input, make("label", "", `${label} `, input)];
  };
  const number = { type: "number", min: 0, max: 1, step: 0.05 };
  const [safe, safeLabel] = field("MARS, lossless, τ", { ...number, value: 0.3 });
  const [loose, looseLabel] = field("MARS, unverified, τ", { ...number, value: 0.8 });
  const [size, sizeLabel] = field("B", { type: "number", min: 2, max: 8, value: 4 });
  const [limit, limitLabel] = field("Tokens", { type: "number", min: 1, max: 512, value: 128 });
  const boxes = [safeLabel, looseLabel, make("span", "", "Plain AR")].map((label) => {
    const box = make("input", { type: "checkbox", checked: "", "aria-label": label.textContent ?? "" });
    return [box, make("div", "rw-method", box, label)];
  });
  const fault = make("p", { class: "rw-fault", role: "alert" });
  /** @param {string} [sentence] */
  const say = (sentence = "") => void (fault.textContent = sentence);

  /** @returns {ReviewMethod[]} */
  const methods = () => {
    const common = { block_size: size.valueAsNumber, max_new_tokens: limit.valueAsNumber, lookup: false };
    const all = [
      { name: `lossless,tau=${safe.value},B=${size.value}`, settings: { method: "mars", lossless: true, tau: safe.valueAsNumber, ...common } }, // prettier-ignore
      { name: `tau=${loose.value},B=${size.value}`, settings: { method: "mars", lossless: false, tau: loose.valueAsNumber, ...common } }, // prettier-ignore
      { name: "ar", settings: { method: "ar", max_new_tokens: limit.valueAsNumber } },
    ];
    const chosen = all.filter((_, i) => /** @type {HTMLInputElement} */ (boxes[i][0]).checked);
    return /** @type {ReviewMethod[]} */ (chosen.map((method) => ({ ...method, checkpoint: checkpoint.value })));
  };
  const submit = async () => {
    say();
    const chosen = methods();
    if (chosen.length < 2) return say("Choose at least two methods.");
    if ([safe, loose, size, limit].some((input) => !input.validity.valid || !input.value))
      return say("One of the numbers is out of range.");
    const [chosenFile] = file.files ?? [];
    try {
      const text = chosenFile ? await textOf(chosenFile) : prompts.value;
      const { items, error } = await read(text, chosenFile?.name ?? "Your list");
      if (!items) return say(error);
      if (items.length > REVIEW.making)
        return say(`On the page, a set has at most ${REVIEW.making} prompts (this is ${items.length}). Use the command for more.`); // prettier-ignore
      made(newSet(items, chosen, chosenFile?.name ?? `Set of ${items.length}`));
    } catch (failure) {
      say(/** @type {{ sentence?: string }} */ (failure).sentence ?? "The server did not respond. Try again.");
    }
    return undefined;
  };
  const element = make(
    "form",
    { class: "rw-form", hidden: "" },
    make("h3", "", "New set"),
    prompts,
    make("label", "", "or a file: text, CSV or TSV with a column prompt, JSONL ", file),
    ...boxes.map(([, row]) => row),
    make("div", "rw-row", sizeLabel, limitLabel, make("label", "", "Model ", checkpoint)),
    make("div", "rw-row", button("rw-make", "Make answers", submit)),
    fault,
  );
  element.addEventListener("submit", (event) => event.preventDefault());
  return element;
}

/**
 * @param {{ prompt: string, system?: string, id?: string }[]} prompts
 * @param {ReviewMethod[]} methods
 * @param {string} name
 * @returns {ReviewSet}
 */
function newSet(prompts, methods, name) {
  const id = `page-${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
  const made = { date: new Date().toISOString(), by: "page" };
  const items = prompts.map(({ prompt, system = "", id: own = "" }, i) => ({
    ...{ id: own || String(i + 1), prompt, system, category: "", reference: "", turns: [] },
    answers: methods.map(() => null),
  }));
  return { id, header: { id, name: name.slice(0, REVIEW.name), methods, made }, items };
}
