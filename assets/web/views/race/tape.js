// The tape of a run: a row for each lane, in it a column for each pass, and in a column a square for each token, in the
// colour and pattern of the token's source. All rows have the same scale as the scrubber in front of them.

import { attribute, make, put, shape } from "../../core/dom.js";
import { mainLane } from "../../core/folds.js";
import { SOURCES } from "../../core/sources.js";

const LEAST = 40; // minimum number of columns, for short runs
const USUAL = 4; // minimum number of squares for which a lane that drafts has room, also before its run begins
const TALLEST = 8; // maximum number of squares in a column
const GAP = 0.12; // gap on each side of a square, as a share of its side
const FEW = 400; // number of columns above which gaps are not drawn, since they would not be visible
const DENSE = 120; // number of columns above which outlines are thin

/**
 * Returns the squares of each source as an SVG path. Units: x is the pass, y is the row of squares from the top.
 * @param {Lane} lane
 * @param {number} columns
 * @returns {{ height: number, paths: Record<string, string> }}
 */
export function rowOf({ isAr, settings, steps }, columns) {
  const gap = columns > FEW ? 0 : GAP;
  const room = isAr ? 1 : Math.max(USUAL, Number(settings?.block_size) || 0); // so that the page does not jump
  const height = Math.min(TALLEST, Math.max(room, ...steps.map(({ count }) => count)));
  /** @type {Record<string, string>} */
  const paths = {};
  for (const { index, sources } of steps) {
    // AR's own token is at the bottom, followed by the drafted tokens.
    const sorted = [...sources].sort((a, b) => Number(b === "ar") - Number(a === "ar"));
    sorted.slice(0, TALLEST).forEach((source, i) => {
      const [x, y, side] = [index + gap, height - 1 - i + gap, 1 - 2 * gap];
      const { mark } = SOURCES[source];
      paths[mark] = `${paths[mark] ?? ""}M${round(x)} ${round(y)}h${round(side)}v${round(side)}h-${round(side)}z`;
    });
  }
  return { height, paths };
}

/** @param {number} value */
const round = (value) => Math.round(value * 100) / 100;

export class Tape {
  columns = LEAST; // also the range of the scrubber

  constructor() {
    this.drawn = "";
    this.element = make("div", { class: "pl-tape", "aria-hidden": true });
  }

  /** @param {Run} run */
  draw({ id, lanes }) {
    const state = [id, ...lanes.map(({ steps, title }) => `${title} ${steps.length}`)].join(" ");
    if (state === this.drawn) return;
    this.drawn = state;
    this.columns = Math.max(LEAST, ...lanes.map(({ steps }) => steps.length));
    const main = mainLane({ lanes });
    const rows = [main, ...lanes.filter((lane) => lane !== main)].map((lane) => this.row(lane));
    this.element.classList.toggle("pl-dense", this.columns > DENSE);
    this.element.replaceChildren(...rows);
  }

  /** @param {Lane} lane */
  row(lane) {
    const { columns } = this;
    const { height, paths } = rowOf(lane, columns);
    const picture = shape("svg", { viewBox: `0 0 ${columns} ${height}`, preserveAspectRatio: "none" });
    picture.append(...Object.entries(paths).map(([mark, d]) => shape("path", { class: `pl-by-${mark}`, d })));
    const name = make("span", "pl-lane");
    put(name, lane.title);
    const row = make("div", { class: "pl-row", "data-lane": lane.name }, name);
    attribute(row, { style: `--pl-squares: ${height}` });
    row.append(picture);
    return row;
  }
}
