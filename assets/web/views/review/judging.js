// The form for a judgement of the current pair: preference, ratings, tags, a note.

import { attribute, button, find, make, put } from "../../core/dom.js";
import { MOST, NOTHING, TAGS, tagOf, toggled } from "./rows.js";

/** @type {[preference: Preference, key: string, text: string][]} */
const PREFERENCES = [
  ["left", "A", "Left is better"],
  ["equal", "S", "Equal"],
  ["right", "D", "Right is better"],
];
const SIDES = ["left", "right"];

export class Judging {
  /** @type {Said} */
  said = NOTHING;

  /**
   * report.say: called with the new judgement when the reviewer presses something. report.note: called when the note's
   * text changes, with isDone when its field loses the focus.
   * @param {HTMLElement} element
   * @param {{ say(said: Said): void, note(text: string, isDone: boolean): void }} report
   */
  constructor(element, report) {
    this.report = report;
    this.preferences = PREFERENCES.map(([value, key, text]) =>
      button(
        { class: "rw-prefer", "aria-pressed": "false", "data-value": value },
        [make("kbd", "", key), make("span", "", text)],
        () => this.prefer(value),
      ),
    );
    this.sides = SIDES.map((name, side) => new Side(name, side, this));
    const given = { rows: 1, maxlength: MOST.note, placeholder: "Note (C)", "aria-label": "Note on this prompt" };
    this.note = make("textarea", { class: "rw-note", ...given });
    this.note.addEventListener("input", () => report.note(this.note.value, false));
    this.note.addEventListener("change", () => report.note(this.note.value, true));
    const preference = make(
      "div",
      { class: "rw-preference", role: "group", "aria-label": "Which answer is better" },
      ...this.preferences,
    );
    element.replaceChildren(preference, ...this.sides.map((side) => side.element), this.note);
  }

  /** @param {Preference} value */
  prefer(value) {
    this.report.say({ ...this.said, preference: this.said.preference === value ? "" : value });
  }

  /**
   * @param {number} side
   * @param {number} rating
   */
  rate(side, rating) {
    const ratings = this.said.ratings.map((old, i) => (i === side ? (old === rating ? 0 : rating) : old));
    this.report.say({ ...this.said, ratings });
  }

  /**
   * @param {number} side
   * @param {string} typed
   */
  tag(side, typed) {
    const tag = tagOf(typed);
    if (!tag) return;
    const tags = this.said.tags.map((old, i) => (i === side ? toggled(old, tag) : old));
    this.report.say({ ...this.said, tags });
  }

  /**
   * Shows a judgement. names: the labels of the left and the right answer. draft: text of the note that is not yet part
   * of the judgement.
   * @param {Said} said
   * @param {string[]} names
   * @param {string | undefined} draft
   */
  show(said, names, draft) {
    this.said = said;
    for (const node of this.preferences)
      attribute(node, { "aria-pressed": String(node.dataset.value === said.preference) });
    this.sides.forEach((side, i) => side.show(said.ratings[i], said.tags[i], names[i]));
    const note = draft ?? said.note;
    if (document.activeElement !== this.note && this.note.value !== note) this.note.value = note;
  }

  /** @param {boolean} isOff */
  disable(isOff) {
    for (const node of this.preferences) node.disabled = isOff;
  }
}

class Side {
  /**
   * @param {string} name
   * @param {number} side
   * @param {Judging} judging
   */
  constructor(name, side, judging) {
    this.name = make("span", "rw-sidename", name);
    this.ratings = [1, 2, 3, 4, 5].map((rating) =>
      button(
        { class: "rw-rating", "aria-pressed": "false", "aria-label": `Rate the ${name} answer ${rating} of 5` },
        String(rating),
        () => judging.rate(side, rating),
      ),
    );
    this.tags = make("div", "rw-tags");
    this.field = make("input", {
      class: "rw-tagfield",
      maxlength: MOST.tag,
      placeholder: side ? "Tag (Shift+T)" : "Tag (T)",
      "aria-label": `Tag of the ${name} answer; Enter adds or removes it`,
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      judging.tag(side, this.field.value);
      this.field.value = "";
    });
    /** @param {string} tag */
    this.press = (tag) => judging.tag(side, tag);
    this.element = make(
      "div",
      { class: "rw-side", role: "group", "aria-label": `The ${name} answer` },
      this.name,
      make("div", "rw-ratings", ...this.ratings),
      make("span", "rw-scale", "1 poor, 5 good"),
      this.field,
      this.tags,
    );
  }

  /**
   * @param {number} rating
   * @param {string[]} tags
   * @param {string} name
   */
  show(rating, tags, name) {
    put(this.name, name);
    this.ratings.forEach((node, i) => attribute(node, { "aria-pressed": String(i + 1 === rating) }));
    const all = [...TAGS, ...tags.filter((tag) => !TAGS.includes(tag))];
    if (all.join("\n") !== this.listed) {
      this.listed = all.join("\n");
      this.tags.replaceChildren(
        ...all.map((tag) =>
          button({ class: "rw-tag", "aria-pressed": "false", "data-tag": tag }, tag, () => this.press(tag)),
        ),
      );
    }
    for (const node of this.tags.querySelectorAll("button"))
      attribute(node, { "aria-pressed": String(tags.includes(node.dataset.tag || "")) });
  }
}

/** @param {HTMLElement} root */
export const noteOf = (root) => /** @type {HTMLTextAreaElement} */ (find(root, ".rw-note"));
