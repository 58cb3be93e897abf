// The bar above the answers (set, compared methods, labels, prompt) and the section below them (reviewer, storage,
// export). Both report what the visitor chooses; the state of the set is stored elsewhere (view.js).

import { newId } from "../../core/bytes.js";
import { button, make, put } from "../../core/dom.js";
import { store, stored } from "../../core/storage.js";
import { counted, dayOf, joined } from "../../core/words.js";
import { MOST, titleOf } from "./rows.js";

const NAME = "mars-review-name";
/** @type {Record<string, string>} */
const SIDES = { "": "visible", each: "hidden until each vote", end: "hidden until the end" };
/** @type {[form: string, text: string][]} */
const FORMS = [
  ["jsonl", "JSONL"],
  ["csv", "CSV"],
  ["html", "HTML"],
  ["comparator", "LLM Comparator"],
];
/** @type {[keys: string, what: string][]} */
const KEYS = [
  ["J K", "next, previous prompt"],
  ["X", "next unjudged prompt"],
  ["N P", "next, previous difference"],
  ["A S D", "left is better, equal, right is better"],
  ["1 to 5", "rate the left answer; with Shift the right one"],
  ["T", "tag the left answer; with Shift the right one (Enter adds, Esc leaves)"],
  ["C", "write a note (Esc leaves)"],
  ["U", "undo your last judgement"],
  ["O", "open the right answer in Live"],
];

/** @param {string} text */
function choice(text) {
  const select = make("select");
  const name = make("span", "", text);
  return { select, name, label: make("label", "rw-choice", name, select) };
}

export class Bar {
  /** @param {{ open(name: string): void, pair(way: number): void, mask(how: string): void, widen(): void, go(by: number): void }} report */
  constructor(report) {
    this.sets = choice("Set");
    this.beside = choice("Compared with");
    this.sides = choice("Labels");
    this.sides.select.append(...Object.entries(SIDES).map(([value, text]) => make("option", { value }, text)));
    this.sets.select.addEventListener("change", () => report.open(this.sets.select.value));
    this.beside.select.addEventListener("change", () => report.pair(Number(this.beside.select.value)));
    this.sides.select.addEventListener("change", () => report.mask(this.sides.select.value));
    this.wide = button({ class: "rw-wide", "aria-pressed": "false" }, "All methods", () => report.widen());
    this.revealer = button("rw-reveal", "Reveal all", () => report.mask(""));
    this.place = make("p", { class: "rw-place rw-num", role: "status" });
    const steps = make(
      "div",
      "rw-steps",
      button({ "aria-label": "Previous prompt" }, "‹", () => report.go(-1)),
      this.place,
      button({ "aria-label": "Next prompt" }, "›", () => report.go(1)),
    );
    const parts = [this.sets.label, this.beside.label, this.wide, this.sides.label, this.revealer, steps];
    this.element = make("div", "rw-bar", ...parts);
  }

  /** @param {string[]} names */
  list(names) {
    this.sets.select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  }

  /** @param {{ id: string, name: string }} own a set that is stored in this browser */
  listOwn({ id, name }) {
    const { select } = this.sets;
    if (![...select.options].some(({ value }) => value === id))
      select.append(make("option", { value: id }, `${name} (yours)`));
  }

  /**
   * @param {ReviewAbout} about
   * @param {number} other
   * @param {string} masked
   * @param {boolean} isWide
   */
  fill({ ways, reference, address }, other, masked, isWide) {
    this.sets.select.value = address;
    this.sides.select.value = masked;
    const others = ways.flatMap(({ name }, way) =>
      way === reference ? [] : [make("option", { value: way }, titleOf(name))],
    );
    this.beside.select.replaceChildren(...others);
    this.beside.select.value = String(other);
    put(this.beside.name, `${titleOf(ways[reference].name)} compared with`);
    this.wide.hidden = Boolean(masked) || ways.length < 3;
    this.wide.setAttribute("aria-pressed", String(isWide));
    this.revealer.hidden = !masked;
  }
}

const someName = () => `reviewer-${newId().slice(0, 4)}`;

export class Keeping {
  /** @param {{ renamed(): void, unlock(key: string): void, save(form: string): void, merge(file: File): void }} report */
  constructor(report) {
    this.where = make("p", { class: "rw-where", role: "status" });
    this.name = make("input", { class: "rw-name", maxlength: MOST.reviewer });
    this.name.value = stored("localStorage", NAME) || someName();
    store("localStorage", NAME, this.name.value);
    this.name.addEventListener("change", () => {
      this.name.value = this.name.value.trim() || someName();
      store("localStorage", NAME, this.name.value);
      report.renamed();
    });
    this.key = make("input", { class: "rw-key", type: "password", autocomplete: "off" });
    this.key.addEventListener("change", () => report.unlock(this.key.value.trim()));
    this.keyLabel = make("label", "rw-choice", "Review key", this.key);
    this.exports = make("div", { class: "rw-exports", role: "group", "aria-label": "Export and merge" }, "Export");
    for (const [form, text] of FORMS) this.exports.append(button({ "data-form": form }, text, () => report.save(form)));
    const attributes = { type: "file", class: "rw-file", "aria-label": "Judgements of another reviewer", hidden: "" };
    const file = make("input", attributes);
    file.addEventListener("change", () => {
      const chosen = file.files?.[0];
      if (chosen) report.merge(chosen);
      file.value = "";
    });
    this.exports.append(
      button("rw-merge", "Merge a file…", () => file.click()),
      file,
    );
    const name = make("label", "rw-choice", "Reviewer", this.name);
    this.element = make("div", "rw-keep", this.where, name, this.keyLabel, this.exports);
  }
}

export const keysHelp = () =>
  make(
    "details",
    "rw-help",
    make("summary", "", "Keys"),
    make("dl", "rw-keys", ...KEYS.flatMap(([key, what]) => [make("dt", "", key), make("dd", "", what)])),
  );

/**
 * @param {string} title
 * @param {HTMLElement} content
 * @param {() => void} opened
 */
export function details(title, content, opened) {
  const node = make("details", "rw-part", make("summary", "", title), content);
  node.addEventListener("toggle", () => node.open && opened());
  return node;
}

/**
 * Describes a set in one line: its name, number of prompts and methods, hardware and date.
 * @param {ReviewAbout} about
 */
export function originText({ name, items, ways, made: { hardware, date = "" } }) {
  const categories = new Set(items.map(({ category }) => category).filter(Boolean)).size;
  const prompts = counted(items.length, "prompt");
  return joined(
    name.includes(prompts) ? name : `${name}: ${prompts}`,
    categories > 1 ? `${categories} categories` : "",
    counted(ways.length, "method"),
    hardware?.processor || "",
    dayOf({ date }),
  );
}

/**
 * Describes where judgements are stored.
 * @param {boolean} hasKey
 * @param {boolean} canKeep whether the server stores judgements of reviewers with the review key
 * @param {number} unsent
 */
export function keptText(hasKey, canKeep, unsent) {
  const waiting = unsent ? `; ${counted(unsent, "judgement")} not sent yet` : "";
  if (hasKey) return `Judgements are stored in this browser and on this server${waiting}.`;
  const more = canKeep ? "With the review key they are also stored on this server." : "Export them to keep a copy.";
  return `Judgements are stored only in this browser. ${more}`;
}

/** @type {(num: number) => string} */
export const sealedText = (num) =>
  num
    ? ` ${counted(num, "judgement")} with hidden labels not revealed yet. Hide the labels again, then press Reveal all.`
    : "";
