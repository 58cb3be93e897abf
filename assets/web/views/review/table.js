// The table of all prompts in a set, with the automatic checks of the compared pair and, in separate columns, the
// reviewer's judgements. Only visible rows are in the document.

import { attribute, button, make, put } from "../../core/dom.js";
import { counted, figure } from "../../core/words.js";
import { TAGS, preferredOf, titleOf } from "./rows.js";

const HEIGHT = 32; // pixels of a row
const SPARE = 8; // number of rows drawn above and below the visible ones

/** @type {ReviewFilter} */
export const ALL = { category: "", agreement: "", judged: "", tag: "", rating: "", tpf: "", text: "", sort: "" };

/**
 * A line of the table. mark: automatic checks of the compared method's answer. row: the reviewer's judgement of the
 * pair.
 * @typedef {{ number: number, id: string, category: string, head: string, mark: ReviewMark | null, row: JudgementRow | null }} Line
 */

/**
 * Returns a line for each prompt. Prompts of a masked pair with equal texts are left out.
 * @param {ReviewListed[]} items
 * @param {number} other the method compared with the reference
 * @param {(item: string) => JudgementRow | undefined} rowOf
 * @returns {Line[]}
 */
export const linesOf = (items, other, rowOf) =>
  items.flatMap(({ id, category, head, marks, same }, number) =>
    same ? [] : [{ number, id, category, head, mark: marks?.[other] ?? null, row: rowOf(id) ?? null }],
  );

/** @type {Record<string, (line: Line) => string | number>} */
const SORTS = {
  prompt: ({ number }) => number,
  category: ({ category }) => category,
  "first difference": ({ mark }) => mark?.word ?? Infinity,
  "tokens per pass": ({ mark }) => -(mark?.tpf ?? 0),
  preferred: ({ row }) => (row ? preferredOf(row) : "~"),
  rating: ({ row }) => -Math.max(0, ...(row?.ratings ?? [])),
};

/**
 * Returns the lines that pass a filter, sorted.
 * @param {Line[]} lines
 * @param {ReviewFilter} filter
 */
export function filtered(lines, filter) {
  const text = filter.text.trim().toLowerCase();
  const least = Number(filter.tpf) || 0;
  const passing = lines.filter(({ category, mark, row, head, id }) => {
    if (filter.category && category !== filter.category) return false;
    if (filter.agreement && (!mark || mark.is_same !== (filter.agreement === "same"))) return false;
    if (filter.judged && Boolean(row?.preference) !== (filter.judged === "yes")) return false;
    if (filter.tag && !row?.tags.flat().includes(filter.tag)) return false;
    if (filter.rating && !row?.ratings.includes(Number(filter.rating))) return false;
    if (least && (mark?.tpf ?? 0) < least) return false;
    return !text || `${id} ${head}`.toLowerCase().includes(text);
  });
  const [name, isDown] = [filter.sort.replace(/^-/, ""), filter.sort.startsWith("-")];
  const of = SORTS[name];
  if (!of) return passing;
  return passing.sort((first, second) => {
    const [a, b] = isDown ? [of(second), of(first)] : [of(first), of(second)];
    return a < b ? -1 : a > b ? 1 : first.number - second.number;
  });
}

/** @type {(query: URLSearchParams) => ReviewFilter} */
export const filterOf = (query) => {
  const filter = { ...ALL };
  for (const name of /** @type {(keyof ReviewFilter)[]} */ (Object.keys(ALL)))
    filter[name] = query.get(`f.${name}`) || "";
  return filter;
};

/** @type {(filter: ReviewFilter) => Record<string, string>} */
export const linkOf = (filter) =>
  Object.fromEntries(
    Object.entries(filter)
      .filter(([, value]) => value)
      .map(([name, value]) => [`f.${name}`, value]),
  );

/** @type {[name: string, group: string, cell: (line: Line) => string][]} */
const COLUMNS = [
  ["prompt", "", ({ id }) => id],
  ["category", "", ({ category }) => category.replaceAll("_", " ")],
  ["text", "", ({ head }) => head],
  [
    "first difference",
    "machine",
    ({ mark }) => (!mark ? "" : mark.is_same ? "same" : mark.word === null ? "spaces" : `word ${mark.word + 1}`),
  ],
  ["tokens per pass", "machine", ({ mark }) => (mark?.tpf ? figure(mark.tpf) : "")],
  ["marks", "machine", ({ mark }) => (mark ? machineWords(mark) : "")],
  ["preferred", "people", ({ row }) => (row ? titleOf(preferredOf(row)) : "")],
  [
    "rating",
    "people",
    ({ row }) => (row?.ratings.some(Boolean) ? row.ratings.map((each) => each || "–").join(" · ") : ""),
  ],
  ["tags", "people", ({ row }) => row?.tags.flat().join(", ") ?? ""],
];

/** @param {ReviewMark} mark */
const machineWords = ({ is_looped, is_right }) =>
  [is_looped ? "loops" : "", is_right === null ? "" : is_right ? "right" : "wrong"].filter(Boolean).join(", ");

export class Table {
  /** @type {Line[]} */
  lines = [];
  filter = ALL;
  shownFrom = -1;

  /** @param {{ filter(filter: ReviewFilter): void, go(number: number): void }} report */
  constructor(report) {
    this.report = report;
    this.count = make("p", { class: "rw-count", role: "status" });
    this.fields = make("div", "rw-filters");
    const heads = COLUMNS.map(([name, group]) => {
      const sortable = name in SORTS ? button("rw-sort", name, () => this.sort(name)) : name;
      return make("span", { class: "rw-cell", role: "columnheader", "data-group": group, "data-sort": name }, sortable);
    });
    this.heads = heads;
    this.body = make("div", { class: "rw-rows", role: "rowgroup" });
    this.scroll = make("div", { class: "rw-scroll", tabindex: "0", role: "region", "aria-label": "All prompts" });
    const groups = make("p", "rw-groups", "Shaded columns: automatic checks. Outlined columns: your judgements.");
    const head = make("div", { role: "rowgroup" }, make("div", { class: "rw-row rw-head", role: "row" }, ...heads));
    this.table = make("div", { class: "rw-table", role: "table", "aria-label": "All prompts" }, head, this.body);
    this.scroll.append(this.table);
    this.scroll.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw(true)).observe(this.scroll);
    this.element = make(
      "section",
      { class: "rw-all", "aria-label": "Table" },
      this.fields,
      this.count,
      groups,
      this.scroll,
    );
    this.build([], []);
  }

  /**
   * Builds the fields of the filter. Categories and tags come from the prompts and rows.
   * @param {ReviewListed[]} items
   * @param {Iterable<JudgementRow>} rows
   */
  build(items, rows) {
    const categories = [...new Set(items.map(({ category }) => category).filter(Boolean))];
    const tags = [...new Set([...TAGS, ...[...rows].flatMap((row) => row.tags.flat())])];
    /** @type {(name: keyof ReviewFilter, label: string, values: [string, string][]) => HTMLElement} */
    const choice = (name, label, values) => {
      const options = [["", "all"], ...values].map(([value, text]) => make("option", { value }, text));
      return this.field(name, label, make("select", "", ...options));
    };
    /** @type {(values: string[]) => [string, string][]} */
    const plain = (values) => values.map((value) => [value, value.replaceAll("_", " ")]);
    this.fields.replaceChildren(
      choice("category", "Category", plain(categories)),
      choice("agreement", "Text", [["same", "same as the reference"], ["differs", "differs"]]), // prettier-ignore
      choice("judged", "Judged", [["yes", "yes"], ["no", "not yet"]]), // prettier-ignore
      choice("tag", "Tag", plain(tags)),
      choice("rating", "Rating", plain(["1", "2", "3", "4", "5"])),
      this.field(
        "tpf",
        "Tokens per pass from",
        make("input", { type: "number", min: 0, step: 0.1, class: "rw-least" }),
      ),
      this.field("text", "Find", make("input", { type: "search", class: "rw-find" })),
    );
    this.fill();
  }

  /**
   * @param {keyof ReviewFilter} name
   * @param {string} label
   * @param {HTMLInputElement | HTMLSelectElement} input
   */
  field(name, label, input) {
    input.dataset.filter = name;
    input.addEventListener("input", () => this.report.filter({ ...this.filter, [name]: input.value }));
    return make("label", "rw-choice", label, input);
  }

  fill() {
    for (const name of /** @type {(keyof ReviewFilter)[]} */ (Object.keys(ALL))) {
      const field = /** @type {HTMLInputElement | null} */ (this.fields.querySelector(`[data-filter="${name}"]`));
      if (field && document.activeElement !== field) field.value = this.filter[name];
    }
  }

  /** @param {string} name */
  sort(name) {
    this.report.filter({ ...this.filter, sort: this.filter.sort === name ? `-${name}` : name });
  }

  /**
   * @param {Line[]} lines the lines that pass the filter, in order
   * @param {number} all number of lines without a filter
   * @param {ReviewFilter} filter
   */
  show(lines, all, filter) {
    Object.assign(this, { lines, filter });
    this.fill();
    put(this.count, lines.length === all ? counted(all, "prompt") : `${lines.length} of ${counted(all, "prompt")}`);
    for (const head of this.heads) {
      const isSorted = filter.sort.replace(/^-/, "") === head.dataset.sort;
      attribute(head, { "aria-sort": isSorted ? (filter.sort.startsWith("-") ? "descending" : "ascending") : "none" });
    }
    this.body.style.height = `${lines.length * HEIGHT}px`;
    attribute(this.table, { "aria-rowcount": lines.length + 1 });
    this.draw(true);
  }

  /**
   * Updates the judgements in the table without filtering or sorting again, so that rows do not move while they are
   * viewed.
   * @param {Line[]} lines
   */
  renew(lines) {
    const fresh = new Map(lines.map((line) => [line.number, line]));
    this.lines = this.lines.map((line) => fresh.get(line.number) ?? line);
    this.draw(true);
  }

  // Draws only the visible rows.
  draw(isFresh = false) {
    if (!this.lines.length) this.body.replaceChildren();
    if (!this.scroll.clientHeight) return;
    const from = Math.max(0, Math.floor(this.scroll.scrollTop / HEIGHT) - SPARE);
    if (!isFresh && Math.abs(from - this.shownFrom) < SPARE / 2) return;
    this.shownFrom = from;
    const num = Math.ceil(this.scroll.clientHeight / HEIGHT) + 2 * SPARE;
    const rows = this.lines.slice(from, from + num).map((line, i) => this.row(line, from + i));
    this.body.replaceChildren(...rows);
  }

  /**
   * @param {Line} line
   * @param {number} index
   */
  row(line, index) {
    const cells = COLUMNS.map(([name, group, cell]) => {
      const text = cell(line);
      const content =
        name === "prompt" ? button({ class: "rw-goto", dir: "auto" }, text, () => this.report.go(line.number)) : text;
      return make("span", { class: "rw-cell", role: "cell", "data-group": group, title: text }, content);
    });
    const row = make("div", { class: "rw-row", role: "row", "aria-rowindex": index + 2 }, ...cells);
    row.style.top = `${index * HEIGHT}px`;
    return row;
  }
}
