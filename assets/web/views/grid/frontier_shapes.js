// What the chart of the frontier is drawn with: its scale, its axes, points and labels. Knows no events.

import { shape } from "../../core/dom.js";
import { short } from "../../core/words.js";
import { cellName } from "./words.js";

export const HEIGHT = 340;
const MARGIN = { left: 46, right: 18, top: 28, bottom: 42 };
const LETTER = 6.4; // pixels of a letter of a label, near enough to keep labels apart
const LINE = 15;

/** @type {Record<string, string>} */
const OUTLINES = {
  ar: "M-5.5 -5.5H5.5V5.5H-5.5Z",
  lossless: "M0 -8L8 0L0 8L-8 0Z",
  tau: "M-6 0A6 6 0 1 1 6 0A6 6 0 1 1 -6 0Z",
};

/**
 * Tokens per forward from AR's one to what the boldest cell takes; agreement from the quarter below the least up to all.
 * @param {GridPoint[]} points
 * @param {number} width
 */
export function scaleOf(points, width) {
  const most = Math.max(1.5, ...points.map(({ x }) => x));
  const step = most > 6 ? 2 : most > 3 ? 1 : most > 2 ? 0.5 : 0.25;
  const end = Math.ceil(most / step + 0.2) * step;
  const low = Math.min(0.75, ...points.map(({ y }) => Math.floor(y * 4) / 4));
  const share = low < 0.5 ? 0.25 : low < 0.75 ? 0.1 : 0.05;
  const [across, down] = [width - MARGIN.left - MARGIN.right, HEIGHT - MARGIN.top - MARGIN.bottom];
  return {
    width,
    ticks: Array.from({ length: Math.round((end - 1) / step) + 1 }, (_, i) => 1 + i * step),
    shares: Array.from({ length: Math.round((1 - low) / share) + 1 }, (_, i) => low + i * share),
    /** @param {number} value */
    x: (value) => MARGIN.left + (across * (value - 0.9)) / (end - 0.9),
    /** @param {number} value */
    y: (value) => MARGIN.top + (down * (1 - value)) / (1 - low),
  };
}

/**
 * @param {string} text
 * @param {string} className
 * @param {Record<string, string | number>} place
 */
function words(text, className, place) {
  const node = shape("text", className, place);
  node.textContent = text;
  return node;
}

/**
 * @param {GridScale} scale
 * @returns {SVGElement[]}
 */
export function axisShapes({ width, ticks, shares, x, y }) {
  const [left, right, bottom] = [MARGIN.left, width - MARGIN.right, HEIGHT - MARGIN.bottom];
  return [
    ...shares.map((share) => shape("path", "gv-gridline", { d: `M${left} ${y(share)}H${right}` })),
    ...shares.map((share) =>
      words(short(100 * share, 0), "gv-tick", { x: left - 8, y: y(share) + 4, "text-anchor": "end" }),
    ),
    ...ticks.map((at) => words(short(at), "gv-tick", { x: x(at), y: bottom + 16, "text-anchor": "middle" })),
    words("tokens per forward", "gv-axis", { x: (left + right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }),
    words("agreement with AR, %", "gv-axis", {
      "text-anchor": "middle",
      transform: `translate(11 ${(y(1) + bottom) / 2}) rotate(-90)`,
    }),
  ];
}

/**
 * A point that is not shown before it has its place.
 * @param {Cell} cell
 */
export function pointOf({ name, row }) {
  const node = shape("g", "gv-point", { role: "button", tabindex: -1, display: "none" });
  const outline = OUTLINES[row ? (row.lossless ? "lossless" : "tau") : "ar"];
  node.dataset.cell = name;
  node.append(shape("circle", "gv-reach", { r: 13 }), shape("path", "gv-dot", { d: outline }));
  return node;
}

/**
 * The names of the points on the frontier, those that have room: above to the right, or to the left where the chart ends.
 * @param {GridPoint[]} points
 * @param {GridScale} scale
 */
export function labelsOf(points, { width, x, y }) {
  /** @type {{ left: number, right: number, at: number }[]} */
  const taken = [];
  return [...points].reverse().flatMap((point) => {
    const text = cellName(point.cell).replace(", ", " · ");
    const long = LETTER * text.length;
    const left = Math.min(x(point.x) + 4, width - long);
    const box = { left, right: left + long, at: y(point.y) - 11 };
    if (taken.some((each) => Math.abs(each.at - box.at) < LINE && each.left < box.right && each.right > box.left))
      return [];
    taken.push(box);
    return [words(text, "gv-label", { x: box.left, y: box.at })];
  });
}
