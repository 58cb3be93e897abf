// The skyline of a run: a column for each pass with a square for each token, in the colour and pattern of the token's
// source. The columns of the main lane extend upwards from a horizontal line, those of the other lanes downwards. The
// skyline is drawn behind the scrubber, at the same scale.

import { attribute, make, shape } from "../../core/dom.js";
import { mainLane } from "../../core/folds.js";
import { SOURCES } from "../../core/sources.js";

const LEAST = 40; // minimum number of columns, for short runs
const TALLEST = 6; // maximum number of squares in a column below the line
const GAP = 0.12; // gap on each side of a square, as a share of its side
const FEW = 400; // number of columns above which gaps are not drawn, since they would not be visible
const DENSE = 120; // number of columns above which outlines are thin
const LINE = 0.7; // height of the line in squares
const ROW = 13; // pixels of a square's height, if there is enough space

/**
 * Returns the squares of each source as an SVG path. Units: x is the pass, y is the row from the top.
 * @param {Lane[]} lanes the main one first
 * @returns {{ columns: number, rows: number, line: number, paths: Record<string, string> }}
 */
export function skylineOf([main, ...others]) {
  const columns = Math.max(LEAST, ...[main, ...others].map((lane) => lane.steps.length));
  const gap = columns > FEW ? 0 : GAP;
  /** @param {Lane} lane */
  const tallest = (lane) => lane.steps.reduce((most, step) => Math.max(most, step.count), 1);
  const line = Math.max(4, tallest(main));
  /** @type {Record<string, string>} */
  const paths = {};
  /** @type {(lane: Lane, place: (i: number) => number, most: number) => void} */
  const add = (lane, place, most) => {
    for (const step of lane.steps) {
      // AR's own token is nearest to the skyline's horizontal line, followed by the drafted tokens.
      const sources = [...step.sources].sort((a, b) => Number(b === "ar") - Number(a === "ar"));
      sources.slice(0, most).forEach((source, i) => {
        const [x, y, side] = [step.index + gap, place(i) + gap, 1 - 2 * gap];
        const { mark } = SOURCES[source];
        paths[mark] = `${paths[mark] ?? ""}M${round(x)} ${round(y)}h${side}v${side}h-${side}z`;
      });
    }
  };
  add(main, (i) => line - 1 - i, Infinity);
  let rows = line + LINE;
  for (const lane of others) {
    const top = rows;
    const most = Math.min(TALLEST, tallest(lane));
    add(lane, (i) => top + i, most);
    rows += most + LINE / 2;
  }
  return { columns, rows, line, paths };
}

/** @param {number} value */
const round = (value) => Math.round(value * 100) / 100;

export class Skyline {
  constructor() {
    this.drawn = "";
    this.element = make("div", { class: "pl-skyline", "aria-hidden": true });
  }

  /** @param {Run} run */
  draw({ id, lanes }) {
    const state = [id, ...lanes.map((lane) => lane.steps.length)].join(" ");
    if (state === this.drawn) return;
    this.drawn = state;
    const main = mainLane({ lanes });
    const { columns, rows, line, paths } = skylineOf([main, ...lanes.filter((lane) => lane !== main)]);
    const picture = shape("svg", { viewBox: `0 0 ${columns} ${round(rows)}`, preserveAspectRatio: "none" });
    picture.append(
      shape("path", { class: "pl-line", d: `M0 ${line + LINE / 2}H${columns}` }),
      ...Object.entries(paths).map(([mark, d]) => shape("path", { class: `pl-by-${mark}`, d })),
    );
    attribute(this.element, { style: `--pl-height: ${Math.round(rows * ROW)}px` });
    this.element.classList.toggle("pl-dense", columns > DENSE);
    this.element.replaceChildren(picture);
    this.columns = columns;
  }

  // The number of columns of the skyline, which is also the range of the scrubber.
  columns = LEAST;
}
