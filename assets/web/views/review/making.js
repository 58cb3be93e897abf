// Creates new sets: the form for prompts and methods, and the progress of decoding the answers. Finished answers are
// stored in this browser while the others are decoded; the server seals them. Pinned runs and lm_eval samples become
// sets without decoding.

import { button, make, put } from "../../core/dom.js";
import { textOf } from "../../core/files.js";
import { LIMITS } from "../../core/table.js";
import { counted } from "../../core/words.js";
import { tray } from "../compare/tray.js";
import { Refusal } from "./server.js";
import { Unfinished } from "./unfinished.js";

const PROMPT_FILES = ".txt,.csv,.tsv,.json,.jsonl,.ndjson";
const POLL = 500; // milliseconds between two requests for the progress
const AWAY = 3000; // milliseconds between two requests while the server does not respond
const NO_ANSWER = "The server does not respond. Finished answers are saved, and this page keeps trying.";
const USUAL = "ar\ntau=0.8,B=4\nlossless,B=4";
const OVER = ["done", "stopped", "failed", "gone"];

/** @param {ReviewProgress} progress */
function progressText({ state, error, num_done, num_all, refused, seconds_left }) {
  const done = `${num_done} of ${counted(num_all, "answer")}`;
  const left = seconds_left === null ? "" : `, about ${timeText(seconds_left)} left`;
  const more = refused.length ? ` ${refused.join(" ")}` : "";
  if (state === "failed" || state === "gone") return `${error}${more}`;
  /** @type {Record<string, string>} */
  const words = {
    making: `${done}${left}…`,
    paused: `Paused at ${done}.`,
    stopped: `Stopped at ${done}.`,
    done: `${done} are ready.`,
  };
  return `${words[state]}${more}`;
}

/** @param {string} text */
const firstLine = (text) => text.split("\n", 1)[0];

/** @param {number} seconds */
export const timeText = (seconds) =>
  seconds < 90 ? counted(Math.max(1, Math.round(seconds)), "second") : counted(Math.round(seconds / 60), "minute");

/**
 * Returns whether a failed request should be repeated, because the server did not respond, is starting or is busy.
 * @param {unknown} error
 */
const isAway = (error) => error instanceof Refusal && (!error.status || error.status === 429 || error.status >= 500);

export class Making {
  job = "";

  /**
   * report.made: called when a set is complete, with its name on the server and its title.
   * @param {ReviewServer} server
   * @param {ReviewSets} sets
   * @param {{ made(name: string, title: string): Promise<unknown> }} report
   */
  constructor(server, sets, report) {
    this.server = server;
    this.report = report;
    this.unfinished = new Unfinished(server, sets, (asked) => this.trying(() => this.make(asked)));
    this.prompts = make("textarea", {
      class: "rw-prompts",
      rows: 5,
      placeholder: "Prompts, one per line, or paragraphs separated by blank lines",
    });
    this.ways = make("textarea", { class: "rw-ways", rows: 3 });
    this.ways.value = USUAL;
    this.limit = make("input", { class: "rw-limit", type: "number", min: 1, max: LIMITS.tokens, value: 128 });
    this.system = make("textarea", { class: "rw-system", rows: 2, placeholder: "The model's default" });
    this.name = make("input", { class: "rw-setname", maxlength: LIMITS.setName, value: "my set" });
    this.file = make("input", { type: "file", accept: PROMPT_FILES, class: "rw-promptfile" });
    this.fileName = "";
    this.file.addEventListener("change", () => this.readPrompts());
    this.firstLine = "";
    this.prompts.addEventListener("input", () => {
      if (firstLine(this.prompts.value) !== this.firstLine) this.fileName = ""; // the text is no longer that of the file
    });
    this.samples = make("input", { type: "file", accept: ".json,.jsonl", multiple: "", class: "rw-samples" });
    this.samples.addEventListener("change", () => this.bringSamples());
    this.begin = button("rw-begin", "Create the set", () => this.start());
    this.pause = button("", "Pause", () => this.steer(this.pause.textContent === "Pause" ? "pause" : "resume"));
    this.stop = button("", "Stop", () => this.steer("stop"));
    const pins = button("", "Use pinned runs", () => this.bringPins());
    this.said = make("p", { class: "rw-progress", role: "status" });
    this.bounds = make("p", "rw-hint");
    /** @type {(text: string, field: Node) => HTMLElement} */
    const label = (text, field) => make("label", "rw-field", make("span", "", text), field);
    this.element = make(
      "section",
      { class: "rw-making", "aria-label": "New set" },
      this.bounds,
      label("Prompts", this.prompts),
      label("System prompt", this.system),
      label("Methods, one per line (first = reference)", this.ways),
      make(
        "div",
        "rw-filters",
        label("Name", this.name),
        label("Max tokens", this.limit),
        label("Prompts from a file (text, CSV, TSV, JSON)", this.file),
        label("Answers of lm_eval --log_samples, one file per method", this.samples),
      ),
      make("div", "rw-filters", this.begin, this.pause, this.stop, pins),
      this.said,
      this.unfinished.element,
    );
    this.idle(true);
  }

  /** @param {ReviewMaking} limits */
  bound({ prompts, ways, checkpoints, isOwner }) {
    const whose = isOwner ? "With the review key" : "Here";
    put(
      this.bounds,
      `${whose}: at most ${prompts} prompts and ${ways} methods, such as “ar”, “tau=0.8,B=4” or “lossless,B=4”; “ar,lookup” is AR with prompt lookup; “checkpoint=NAME” selects one of ${checkpoints.join(", ")}. B must be a number unless the method is lossless.`,
    );
  }

  /** @param {boolean} isIdle */
  idle(isIdle) {
    this.begin.disabled = !isIdle;
    this.pause.hidden = isIdle;
    this.stop.hidden = isIdle;
  }

  readPrompts() {
    const [file] = this.file.files || [];
    if (!file) return undefined;
    return this.trying(async () => {
      this.file.value = ""; // allows choosing the same file again
      this.prompts.value = await textOf(file);
      this.fileName = file.name;
      this.firstLine = firstLine(this.prompts.value);
      put(this.said, `${file.name} was loaded into the box above.`);
    });
  }

  start() {
    const { prompts, fileName: file } = this;
    const ways = this.ways.value.split("\n").map((line) => line.trim()).filter(Boolean); // prettier-ignore
    return this.trying(() =>
      this.make({
        prompts: prompts.value,
        system: this.system.value,
        file,
        ways,
        name: this.name.value,
        max_new_tokens: Number(this.limit.value),
      }),
    );
  }

  /** @param {MakingAsked | { set: string }} asked a new set, or the set to continue */
  async make(asked) {
    const { name, faults } = await this.server.json("make", asked);
    await this.unfinished.started(name, asked);
    await this.follow(name, faults);
  }

  // Continues to show the progress of an unfinished set from an earlier visit, if there is one.
  resume() {
    return this.trying(async () => {
      const unfinished = this.job ? null : await this.unfinished.last();
      if (unfinished) await this.follow(unfinished.id, []);
    });
  }

  /**
   * Shows the progress of a set until it ends.
   * @param {string} name
   * @param {string[]} faults error messages about lines of the prompts
   */
  async follow(name, faults) {
    this.job = name;
    this.idle(false);
    try {
      for (;;) {
        const progress = await this.showProgress(faults);
        if (progress && OVER.includes(progress.state)) return await this.end(progress);
        await new Promise((resolve) => {
          setTimeout(resolve, progress ? POLL : AWAY);
        });
      }
    } finally {
      this.job = "";
      this.idle(true);
    }
  }

  /**
   * Requests and shows the progress. Returns null while the server does not respond.
   * @param {string[]} faults
   * @returns {Promise<ReviewProgress | null>}
   */
  async showProgress(faults) {
    try {
      /** @type {ReviewProgress} */
      const progress = await this.server.json(`make/${this.job}`);
      put(this.said, [progressText(progress), ...faults].join(" "));
      put(this.pause, progress.state === "paused" ? "Resume" : "Pause");
      await this.unfinished.keep(progress);
      return progress;
    } catch (error) {
      if (!isAway(error)) throw error;
      put(this.said, NO_ANSWER);
      return null;
    }
  }

  /** @param {ReviewProgress} progress */
  async end({ state }) {
    if (state === "gone") put(this.said, ""); // the offer to continue contains the reason
    if (state !== "done") return this.unfinished.offer(state);
    const { id, name } = this.unfinished.set || { id: this.job, name: this.name.value };
    await this.report.made(id, name);
    return this.unfinished.done();
  }

  /** @param {string} act */
  steer(act) {
    return this.trying(() => this.server.json(`make/${this.job}`, { do: act }));
  }

  bringPins() {
    return this.trying(async () => {
      await tray().begin();
      const pins = tray().pins.map(({ record }) => record.lines.join("\n"));
      await this.bring({ pins, name: "pinned runs" });
    });
  }

  bringSamples() {
    return this.trying(async () => {
      const files = [...(this.samples.files || [])];
      const samples = await Promise.all(files.map(async (file) => ({ name: file.name, text: await textOf(file) })));
      this.samples.value = "";
      await this.bring({ samples, name: this.name.value });
    });
  }

  /** @param {{ name: string, pins?: string[], samples?: { name: string, text: string }[] }} answers */
  async bring(answers) {
    const { name } = await this.server.json("sets", answers);
    await this.report.made(name, answers.name);
    put(this.said, `${answers.name} is open.`);
  }

  /** @param {() => Promise<unknown>} act */
  async trying(act) {
    try {
      await act();
    } catch (error) {
      put(this.said, /** @type {{ sentence?: string }} */ (error).sentence || "This did not work. Try again.");
    }
  }
}
