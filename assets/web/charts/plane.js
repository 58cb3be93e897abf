// Common parts of the two SVG charts that show quality by tokens per pass (Frontier view and grid view): outlines of
// points by type of method, axes, the line through the best points, and labels that do not overlap.

import { make, shape } from "../core/dom.js";

const LETTER = 7.6; // approximate width in pixels of a character in a label
const LINE = 15; // height of a label in pixels

/** @type {Record<string, string>} */
export const OUTLINES = {
  ar: "M-5.5 -5.5H5.5V5.5H-5.5Z",
  lossless: "M0 -8L8 0L0 8L-8 0Z",
  tau: "M-6 0A6 6 0 1 1 6 0A6 6 0 1 1 -6 0Z",
};

/** @type {Record<string, string>} */
const KINDS = { ar: "plain AR", lossless: "lossless", tau: "unverified, by τ" };

/**
 * Returns the functions that convert values to coordinates in a picture of this size.
 * @param {{ width: number, height: number, margin: Margin }} picture
 * @param {[from: number, to: number]} x
 * @param {[from: number, to: number]} y
 * @returns {PlaneScale}
 */
export function planeScale({ width, height, margin: { left, right, top, bottom } }, [first, last], [low, high]) {
  return {
    x: (value) => left + ((width - left - right) * (value - first)) / (last - first),
    y: (value) => top + ((height - top - bottom) * (high - value)) / (high - low),
  };
}

/**
 * @param {{ x: number, y: number }[]} points
 * @param {PlaneScale} scale
 */
export const lineThrough = (points, { x, y }) =>
  points.map((point, i) => `${i ? "L" : "M"}${x(point.x)} ${y(point.y)}`).join("");

/**
 * Returns the path of the frontier: a staircase through the frontier's points, from the left edge of the chart down to
 * the horizontal axis.
 * @param {{ x: number, y: number }[]} best the points of the frontier from left to right
 * @param {PlaneScale} scale
 * @param {{ height: number, margin: Margin }} picture
 */
export function frontierLine(best, { x, y }, { height, margin }) {
  if (!best.length) return "";
  const steps = best.map((point) => `V${y(point.y)}H${x(point.x)}`).join("");
  return `M${margin.left} ${y(best[0].y)}${steps}V${height - margin.bottom}`;
}

/**
 * Creates the legend of the outlines of marks.
 * @param {string[]} kinds the type of each mark's method
 */
export function markKeys(kinds) {
  const keys = Object.keys(OUTLINES)
    .filter((kind) => kinds.includes(kind))
    .map((kind) => {
      const mark = shape("path", { d: OUTLINES[kind], "data-kind": kind });
      const picture = shape("svg", { viewBox: "-9 -9 18 18", width: 14, "aria-hidden": true }, mark);
      return make("span", "", picture, KINDS[kind]);
    });
  return make("p", "rv-markkeys", ...keys, make("span", "", "filled: on the dashed line"));
}

/** @param {string} text */
export const lengthOf = (text) => LETTER * text.length;

/**
 * Places a label if it overlaps none of the placed boxes: adds it to them and returns true. Otherwise returns false.
 * @param {LabelBox[]} taken
 * @param {LabelBox} box
 */
export function takesRoom(taken, box) {
  const isFree = !taken.some(
    (other) => Math.abs(other.at - box.at) < LINE && other.left < box.right && other.right > box.left,
  );
  if (isFree) taken.push(box);
  return isFree;
}

/**
 * Draws the grid lines and ticks of the vertical axis (shares), the ticks of the horizontal axis, and the titles of
 * both. prefix: prefix of the CSS classes. below: distance in pixels from the horizontal axis to its ticks.
 * @param {{ width: number, height: number, margin: Margin }} picture
 * @param {PlaneScale} scale
 * @param {{ prefix: string, ticks: [number, string][], shares: [number, string][], below: number, title: string, across: string }} given
 */
export function planeAxes({ width, height, margin }, { x, y }, { prefix, ticks, shares, below, title, across }) {
  const [left, right, floor] = [margin.left, width - margin.right, height - margin.bottom];
  const middle = { class: `${prefix}-axis`, "text-anchor": "middle" };
  return [
    ...shares.flatMap(([share, text]) => [
      shape("path", { class: `${prefix}-gridline`, d: `M${left} ${y(share)}H${right}` }),
      shape("text", { class: `${prefix}-tick`, x: left - 8, y: y(share) + 4, "text-anchor": "end" }, text),
    ]),
    ...ticks.map(([at, text]) =>
      shape("text", { class: `${prefix}-tick`, x: x(at), y: floor + below, "text-anchor": "middle" }, text),
    ),
    shape("text", { ...middle, x: (left + right) / 2, y: height - 6 }, across),
    shape("text", { ...middle, transform: `translate(11 ${(margin.top + floor) / 2}) rotate(-90)` }, title),
  ];
}
