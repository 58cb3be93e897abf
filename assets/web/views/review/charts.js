// The results of a review set, which the server computes from the judgements: charts with intervals, agreement between
// reviewers, and a warning if there are too few judgements for a conclusion. A separate table above the charts has the
// results of the automatic checks.

import { Plots, chartFrame } from "../../charts/plots.js";
import { axis, layout } from "../../charts/plot.js";
import { coloursOf } from "../../core/colours.js";
import { make, put, watchTheme } from "../../core/dom.js";
import { counted, figure, short } from "../../core/words.js";
import { titleOf } from "./rows.js";

/** @type {[key: string, title: string][]} */
const CHARTS = [
  ["preference", "Preferred over the reference, share of judgements"],
  ["rating", "Mean rating, 1 to 5, by method"],
  ["tags", "Share of judgements with a tag, by method"],
  ["pace", "Preference by tokens per pass"],
  ["category", "Better or equal, by category"],
];
const MOST_TAGS = 5;

/**
 * Escapes text for Plotly, which interprets some HTML.
 * @param {string} text
 */
export const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** @param {(ReviewEstimate | null)[]} estimates */
const bounds = (estimates) => ({
  type: "data",
  symmetric: false,
  array: estimates.map((estimate) => (estimate ? estimate.high - estimate.value : 0)),
  arrayminus: estimates.map((estimate) => (estimate ? estimate.value - estimate.low : 0)),
  thickness: 1.2,
  width: 4,
});

/**
 * Returns the names of the methods sorted by how aggressively they accept tokens: AR, lossless methods, then the others
 * by decreasing τ.
 * @param {ReviewWay[]} ways
 */
export function byBoldness(ways) {
  /** @param {ReviewWay} way */
  const rank = ({ settings }) =>
    !settings ? 3 : settings.method === "ar" ? 0 : settings.lossless ? 1 : 2 - Number(settings.tau ?? 0) / 2;
  return ways.toSorted((a, b) => rank(a) - rank(b)).map(({ name }) => name);
}

/** @param {ReviewFigures["agreement"]} agreement */
export function agreementText({ num_reviewers, num_shared, preference, rating }) {
  if (num_reviewers < 2) return "Only one reviewer, so agreement can't be estimated.";
  if (!num_shared) return `${num_reviewers} reviewers, but no pair was judged by two of them.`;
  /** @type {(name: string, alpha: number | null) => string} */
  const alphaText = (name, alpha) =>
    alpha === null ? `${name}: no pair judged by two reviewers` : `${name}: ${short(alpha)}`;
  return `Krippendorff's alpha of ${num_reviewers} reviewers on ${counted(num_shared, "shared pair")}: ${alphaText("preference", preference)}, ${alphaText("rating", rating)}. 1 is full agreement, 0 is chance.`;
}

export class Charts {
  /** @type {ReviewFigures | null} */
  figures = null;
  /** @type {ReviewAbout | null} */
  about = null;
  other = 0;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.caution = make("p", { class: "rw-caution", role: "status" });
    this.agreement = make("p", "rw-agreement");
    this.machine = make("div", {
      class: "rw-scroll rw-machine",
      tabindex: "0",
      role: "region",
      "aria-label": "Automatic checks",
    });
    this.people = make("div", {
      class: "rw-scroll rw-people",
      tabindex: "0",
      role: "region",
      "aria-label": "Preferences",
    });
    const drawn = make("div", "rw-charts");
    const frames = CHARTS.map(([key, title]) => chartFrame(key, title));
    this.plots = new Plots(root, drawn, frames, {
      figure: (key, frame) => this.figure(key, frame),
      rest: "the tables are",
    });
    const note = make(
      "p",
      "rw-hint",
      "Lines are 95 % intervals, bootstrapped by prompt. Prompts with identical answers are counted separately.",
    );
    this.element = make(
      "section",
      { class: "rw-says", "aria-label": "Charts" },
      make("h2", "", "Automatic checks"),
      this.machine,
      make("h2", "", "Human votes"),
      this.caution,
      this.agreement,
      this.people,
      note,
      drawn,
    );
    watchTheme(root, () => this.plots.draw());
  }

  /**
   * @param {ReviewAbout} about
   * @param {ReviewFigures} figures
   * @param {number} other
   */
  show(about, figures, other) {
    Object.assign(this, { about, figures, other });
    put(this.caution, figures.caution);
    put(this.agreement, agreementText(figures.agreement));
    this.machine.replaceChildren(machineTable(about));
    this.people.replaceChildren(figures.preferences.length ? peopleTable(figures.preferences) : "");
    this.plots.show();
  }

  clear() {
    Object.assign(this, { about: null, figures: null });
    for (const node of [this.machine, this.people, this.caution, this.agreement]) node.replaceChildren();
    this.plots.clear();
  }

  /**
   * @param {string} key
   * @param {HTMLElement} frame
   */
  figure(key, frame) {
    const { about, figures } = this;
    const c = coloursOf(this.root);
    const chart = about && figures ? figureOf(key, about, figures, about.ways[this.other]?.name ?? "", c) : null;
    frame.hidden = !chart;
    return chart;
  }
}

/**
 * Returns a chart for Plotly; null if there is nothing to draw.
 * @param {string} key
 * @param {ReviewAbout} about
 * @param {ReviewFigures} figures
 * @param {string} other
 * @param {Colours} c
 * @returns {Figure | null}
 */
export function figureOf(key, { ways, marks, reference }, { preferences, said, by_category }, other, c) {
  const order = byBoldness(ways);
  /** @type {<T extends { way: string }>(list: T[]) => T[]} */
  const sorted = (list) => list.toSorted((a, b) => order.indexOf(a.way) - order.indexOf(b.way));
  /** @type {(data: Json[], title: string, more: Json, x?: Json, below?: string) => Figure} */
  const made = (data, title, more, x = { type: "category", tickmode: "linear", dtick: 1 }, below = "") => ({
    data,
    layout: layout(c, axis(c, below, { showgrid: false, automargin: true, ...x }), axis(c, title, more), {
      barmode: "group",
      showlegend: data.length > 1,
      legend: { orientation: "h", y: 1.14, x: 0, font: { size: 11 } },
      margin: { l: 52, r: 12, t: 30, b: 46 },
    }),
  });
  /** @type {(name: string, x: string[], estimates: (ReviewEstimate | null)[], color: string) => Json} */
  const bars = (name, x, estimates, color) => ({
    type: "bar",
    name: plain(name),
    x: x.map(plain),
    y: estimates.map((estimate) => estimate?.value ?? null),
    error_y: { ...bounds(estimates), color: c.ink },
    marker: { color },
    hovertemplate: "%{x}: %{y:.2f}<extra></extra>",
  });
  const share = { range: [0, 1.02], tickformat: ".0%" };
  const preferred = sorted(preferences);
  const names = preferred.map(({ way }) => titleOf(way));
  if (key === "preference" && preferred.length)
    return made(
      [
        bars("the method itself", names, preferred.map(({ better }) => better), c.mars), // prettier-ignore
        bars("neither", names, preferred.map(({ equal }) => equal), c.ar), // prettier-ignore
        bars(titleOf(ways[reference].name), names, preferred.map(({ worse }) => worse), c.warm), // prettier-ignore
      ],
      "share",
      share,
    );
  const rated = sorted(said.filter(({ rating }) => rating));
  if (key === "rating" && rated.length)
    return made([bars("rating", rated.map(({ way }) => titleOf(way)), rated.map(({ rating }) => rating), c.mars)], "rating", { range: [0, 5.2] }); // prettier-ignore
  if (key === "tags") return tagFigure(sorted(said), made, c);
  if (key === "pace" && preferred.length) return paceFigure(preferred, marks, titleOf(ways[reference].name), made, c);
  if (key === "category") {
    const estimates = Object.entries(by_category).flatMap(([name, list]) =>
      list.filter(({ way }) => way === other).map(({ better, equal }) => ({ name, better, equal })),
    );
    const x = estimates.map(({ name }) => name.replaceAll("_", " "));
    if (estimates.length)
      return made(
        [
          bars(`${titleOf(other)} is better`, x, estimates.map(({ better }) => better), c.mars), // prettier-ignore
          bars("equal", x, estimates.map(({ equal }) => equal), c.ar), // prettier-ignore
        ],
        "share",
        share,
      );
  }
  return null;
}

/**
 * @param {ReviewSaid[]} said
 * @param {(data: Json[], title: string, more: Json) => Figure} made
 * @param {Colours} c
 */
function tagFigure(said, made, c) {
  const tags = [...new Set(said.flatMap(({ tags: byTag }) => Object.keys(byTag)))].slice(0, MOST_TAGS);
  if (!tags.length) return null;
  const data = tags.map((tag, i) => {
    const estimates = said.map(({ tags: byTag }) => byTag[tag] ?? null);
    return {
      type: "scatter",
      mode: "lines+markers",
      name: plain(tag),
      x: said.map(({ way }) => plain(titleOf(way))),
      y: estimates.map((estimate) => estimate?.value ?? 0),
      error_y: { ...bounds(estimates), color: c.runs[i + 1] },
      line: { color: c.runs[i + 1], width: 1.5 },
    };
  });
  return made(data, "share", { range: [0, 1.02], tickformat: ".0%" });
}

/**
 * @param {ReviewPreferred[]} preferred
 * @param {ReviewTotals[]} marks
 * @param {string} reference
 * @param {(data: Json[], title: string, more: Json, x: Json, below: string) => Figure} made
 * @param {Colours} c
 */
function paceFigure(preferred, marks, reference, made, c) {
  const known = preferred.flatMap((method) => {
    const tpf = marks.find(({ way, category }) => way === method.way && !category)?.tpf;
    return tpf ? [{ ...method, tpf }] : [];
  });
  if (!known.length) return null;
  /** @type {(name: string, estimates: ReviewEstimate[], color: string) => Json} */
  const points = (name, estimates, color) => ({
    type: "scatter",
    mode: "markers+text",
    name: plain(name),
    x: known.map(({ tpf }) => tpf),
    y: estimates.map(({ value }) => value),
    error_y: { ...bounds(estimates), color },
    text: known.map(({ way }) => plain(titleOf(way))),
    textposition: "middle right",
    textfont: { size: 11, color: c.ink },
    marker: { size: 9, color },
    hovertemplate: "%{text}: %{y:.2f} at %{x:.2f} tokens per pass<extra></extra>",
  });
  const data = [
    points("the method itself", known.map(({ better }) => better), c.mars), // prettier-ignore
    points(reference, known.map(({ worse }) => worse), c.warm), // prettier-ignore
  ];
  return made(
    data,
    "share that prefers it",
    { range: [0, 1.02], tickformat: ".0%" },
    { type: "linear" },
    "tokens per pass",
  );
}

/** @param {ReviewAbout} about */
function machineTable({ marks, ways, reference }) {
  const heads = [
    "method",
    "tokens per pass",
    `same text as ${titleOf(ways[reference].name)}`,
    "first different word, median",
    "repeats itself",
    "right (checked)",
  ];
  const rows = marks
    .filter(({ category }) => !category)
    .map((mark) => [
      mark.tpf === null ? "–" : figure(mark.tpf),
      `${mark.num_same} of ${mark.num_answers}`,
      mark.first_word === null ? "–" : short(mark.first_word, 1),
      `${mark.num_looped} of ${mark.num_answers}`,
      mark.num_checked ? `${mark.num_right} of ${mark.num_checked}` : "–",
    ]);
  const names = marks.filter(({ category }) => !category).map(({ way }) => titleOf(way));
  return tableOf(heads, names, rows);
}

/** @param {ReviewPreferred[]} preferences */
function peopleTable(preferences) {
  /** @param {ReviewEstimate} estimate */
  const shareText = ({ value, low, high }) =>
    `${Math.round(100 * value)} % [${Math.round(100 * low)}, ${Math.round(100 * high)}]`;
  const heads = ["method", "better", "equal", "worse", "prompts", "judgements", "identical answers"];
  const rows = preferences.map((method) => [
    shareText(method.better),
    shareText(method.equal),
    shareText(method.worse),
    String(method.num_prompts),
    String(method.num_judgements),
    String(method.num_identical),
  ]);
  return tableOf(heads, preferences.map(({ way }) => titleOf(way)), rows); // prettier-ignore
}

/** @type {(heads: string[], names: string[], rows: string[][]) => HTMLTableElement} */
const tableOf = (heads, names, rows) =>
  make(
    "table",
    "rw-num",
    make("thead", "", make("tr", "", ...heads.map((head) => make("th", { scope: "col" }, head)))),
    make(
      "tbody",
      "",
      ...rows.map((cells, i) =>
        make("tr", "", make("th", { scope: "row" }, names[i]), ...cells.map((cell) => make("td", "", cell))),
      ),
    ),
  );
