// Common parts of two charts of quality against tokens per forward, as SVG: marks by kind of method, axes, the line
// through the best, names that fit.

import { make, shape } from "../core/dom.js";

const LETTER = 7.6; // approximate pixels of a label's letter
const LINE = 15;

/** @type {Record<string, string>} */
export const OUTLINES = {
  ar: "M-5.5 -5.5H5.5V5.5H-5.5Z",
  lossless: "M0 -8L8 0L0 8L-8 0Z",
  tau: "M-6 0A6 6 0 1 1 6 0A6 6 0 1 1 -6 0Z",
};

/** @type {Record<string, string>} */
const KINDS = { ar: "plain AR", lossless: "lossless", tau: "unverified, by τ" };

/**
 * Returns the coordinates of values in a picture of this size.
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
 * Draws a line through points, in order.
 * @param {{ x: number, y: number }[]} points
 * @param {PlaneScale} scale
 */
export const lineThrough = (points, { x, y }) =>
  points.map((each, i) => `${i ? "L" : "M"}${x(each.x)} ${y(each.y)}`).join("");

/**
 * Draws the border of what a frontier's points reach, as steps from the left edge down to the floor: every other point is
 * on it or below.
 * @param {{ x: number, y: number }[]} best from left to right
 * @param {PlaneScale} scale
 * @param {{ height: number, margin: Margin }} picture
 */
export function frontierLine(best, { x, y }, { height, margin }) {
  if (!best.length) return "";
  const steps = best.map((each) => `V${y(each.y)}H${x(each.x)}`).join("");
  return `M${margin.left} ${y(best[0].y)}${steps}V${height - margin.bottom}`;
}

/**
 * Returns the legend of the marks of these kinds.
 * @param {string[]} kinds
 */
export const markKeys = (kinds) =>
  make(
    "p",
    "rv-markkeys",
    ...kinds.map((kind) => {
      const mark = shape("path", { d: OUTLINES[kind], "data-kind": kind });
      return make(
        "span",
        "",
        shape("svg", { viewBox: "-9 -9 18 18", width: 14, "aria-hidden": true }, mark),
        KINDS[kind],
      );
    }),
    make("span", "", "filled: on the dashed line"),
  );

/** @param {string} text */
export const lengthOf = (text) => LETTER * text.length;

/**
 * Whether a label fits next to those already placed; if so, reserves its place.
 * @param {LabelBox[]} taken
 * @param {LabelBox} box
 */
export function takesRoom(taken, box) {
  const isFree = !taken.some(
    (each) => Math.abs(each.at - box.at) < LINE && each.left < box.right && each.right > box.left,
  );
  if (isFree) taken.push(box);
  return isFree;
}

/**
 * Draws grid lines and ticks of quality, ticks of the horizontal axis, and the axes' titles. prefix: of the CSS classes.
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
