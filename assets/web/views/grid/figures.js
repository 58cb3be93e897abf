// The two Plotly figures of the Trade-off view. Pure; no DOM.

import { axis, escaped, label, layout } from "../../charts/plot.js";
import { folds } from "../../core/folds.js";
import { isTimed, ofRounds } from "../../core/speedup.js";
import { figure } from "../../core/words.js";
import { acrossOf, agreement, cellLines, cellName, percent, rowName } from "../../folds/grid.js";

/** @type {(lines: string[]) => string} */
const hover = (lines) => lines.map(escaped).join("<br>");

/**
 * Returns error bars from estimates in the unit of the axis.
 * @param {Estimate[]} estimates
 * @param {Json} [more]
 */
const bars = (estimates, more = {}) => ({
  type: "data",
  symmetric: false,
  array: estimates.map(({ value, high }) => high - value),
  arrayminus: estimates.map(({ value, low }) => value - low),
  thickness: 1,
  width: 0,
  ...more,
});

/** @type {(estimate: Estimate) => Estimate} */
const inPercent = ({ value, low, high }) => ({ value: 100 * value, low: 100 * low, high: 100 * high });

/**
 * Returns the recorded results of many prompts as faint crosses with their intervals.
 * @param {MeasuredPoint[]} points
 * @param {"tpf" | "speed"} measure
 * @param {Colours} c
 */
function crosses(points, measure, c) {
  const timed = points.filter((point) => point[measure]);
  const across = timed.map((point) => /** @type {Estimate} */ (point[measure]));
  const shares = timed.map((point) => inPercent(point.agreement));
  const texts = timed.map(({ name, num_prompts: num }, i) => [
    name,
    `${num} prompts, recorded`,
    `${figure(across[i].value)}${measure === "tpf" ? " tokens per pass" : " times AR's speed"}`,
    `${percent(shares[i].value / 100)} of the answers are AR's`,
  ]);
  return {
    ...{ type: "scatter", mode: "markers", opacity: 0.35, hoverinfo: "text" },
    x: across.map(({ value }) => value),
    y: shares.map(({ value }) => value),
    hovertext: texts.map(hover),
    marker: { symbol: "cross-thin", size: 8, color: c.muted, line: { width: 1.5, color: c.muted } },
    error_x: bars(across, { color: c.muted }),
    error_y: bars(shares, { color: c.muted }),
  };
}

/**
 * Returns agreement with AR by tokens per pass or by speed: a line of markers for each row, each with its B, and the two
 * references.
 * @param {GridState} grid
 * @param {Colours} c
 * @returns {Figure}
 */
export function scatterFigure({ rows, references, points, isSpeed }, c) {
  const [ar, lookup] = references;
  const lines = [[ar], [lookup], ...[...rows].reverse()].map((cells) =>
    cells.filter((cell) => isPlaced(cell, ar, isSpeed)).map((cell) => placed(cell, ar, isSpeed)),
  );
  const measured = crosses(points, isSpeed ? "speed" : "tpf", c);
  const marks = lines.flat();
  const ends = isSpeed ? marks.flatMap(({ across: { low, high } }) => [low, high]) : [];
  const xs = [...marks.map(({ across }) => across.value), ...measured.x, ...ends].filter(Number.isFinite);
  const range = [Math.min(0.95, 0.92 * Math.min(...xs)), 1.08 * Math.max(1.4, ...xs)];
  stack(marks, range);
  const data = lines.map((line) => {
    const { cell } = line[0] ?? {};
    const isMars = Boolean(cell?.row);
    const color = isMars ? c.mars : cell === ar ? c.ar : c.lookup;
    const symbol = isMars ? (cell.row?.lossless ? "diamond" : "circle") : "square";
    return {
      ...{ type: "scatter", mode: "lines+markers+text", hoverinfo: "text", cliponaxis: false },
      x: line.map(({ across }) => across.value),
      y: line.map(({ height }) => height),
      text: line.map((mark) => (isMars ? String(mark.cell.blockSize) : "")),
      textfont: { size: 13, color: line.map((mark) => (isSpeed && !isClear(mark.cell) ? color : c.page)) },
      customdata: line.map((mark) => mark.cell.name),
      hovertext: line.map((mark) => hover(markLines(mark, ar))),
      line: { color, width: 1, dash: "dot" },
      marker: {
        symbol: line.map((mark) => (isSpeed && !isClear(mark.cell) ? `${symbol}-open` : symbol)),
        color,
        size: symbol === "diamond" ? 22 : isMars ? 18 : 13,
        line: { color: c.page, width: 1 },
      },
      ...(isSpeed
        ? {
            error_x: bars(
              line.map(({ across }) => across),
              { color },
            ),
          }
        : {}),
    };
  });
  const top = Math.max(100, ...marks.map(({ height }) => height)) + 14;
  const across = axis(c, isSpeed ? "speed relative to AR" : "tokens per forward pass", { range, showgrid: false });
  const down = axis(c, "agreement with AR's text, %", { range: [-6, top], tickvals: [0, 25, 50, 75, 100] });
  const annotations = labels(lines.toReversed().flatMap((line) => line.slice(-1)), range, c); // prettier-ignore
  const margin = { l: 56, r: 16, t: 8, b: 44 };
  return { data: [measured, ...data], layout: layout(c, across, down, { margin, annotations }) };
}

const [WIDTH, HEIGHT] = [0.013, 13]; // of a marker: as a share of the horizontal axis, and in percent of agreement

/**
 * Raises marks that would cover another one, and notes in each the cells with the same position.
 * @param {GridMark[]} marks
 * @param {number[]} range of the horizontal axis
 */
function stack(marks, [from, to]) {
  /** @type {(mark: GridMark, other: GridMark) => boolean} */
  const isCovered = (mark, other) =>
    Math.abs(mark.across.value - other.across.value) < WIDTH * (to - from) &&
    Math.abs(mark.height - other.height) < HEIGHT;
  const same = marks.map((mark) => marks.filter((other) => other !== mark && isCovered(mark, other)));
  marks.forEach((mark, i) => {
    mark.same = same[i];
    const below = marks.slice(0, i);
    while (below.some((other) => isCovered(mark, other))) mark.height += 1;
  });
}

/**
 * Returns the description of a mark, and the names of the cells with the same position.
 * @param {GridMark} mark
 * @param {Cell} ar
 */
const markLines = ({ cell, same }, ar) => [
  ...cellLines(cell, ar),
  ...(same.length ? [`at the same place: ${same.map((other) => cellName(other.cell)).join("; ")}`] : []),
];

/**
 * Returns a label above the last mark of each line, or below it: AR's, and those of marks below another one. Labels that
 * would overlap become one.
 * @param {GridMark[]} marks
 * @param {number[]} range of the horizontal axis
 * @param {Colours} c
 */
function labels(marks, [from, to], c) {
  /** @type {(GridMark & { names: string[], isBelow: boolean })[]} */
  const taken = [];
  for (const mark of marks) {
    const { across, cell, height, same } = mark;
    const isBelow = cell.name === "ar" || same.some((other) => other.height > height);
    /** @param {typeof taken[0]} other */
    const isNear = (other) =>
      other.isBelow === isBelow &&
      Math.abs(other.across.value - across.value) < 0.12 * (to - from) &&
      Math.abs(other.height - height) < HEIGHT;
    const near = taken.find(isNear);
    const name = cell.row ? rowName(cell.row) : cellName(cell);
    if (near) near.names.push(name);
    else taken.push({ ...mark, isBelow, names: [name] });
  }
  return taken.map(({ cell, across, height, isBelow, names }) => {
    return label(names.join(", "), across.value, height, cell.row ? c.mars : c.muted, {
      xanchor: across.value < from + 0.08 * (to - from) ? "left" : "center",
      xshift: 0,
      yshift: isBelow ? -19 : 19,
    });
  });
}

/** @type {(cell: Cell) => boolean} whether the whole range of the speed is above or below 1 */
const isClear = ({ name, rounds }) => name === "ar" || Boolean(rounds && isTimed(ofRounds(rounds)));

/**
 * Returns what the marks of the scatter mean, and the cells without a mark.
 * @param {GridState} grid
 */
export function scatterNote({ rows, references, points, isSpeed }) {
  const missing = [...references.slice(1), ...rows.flat()].filter(
    (cell) => cell.rounds && !Number.isFinite(acrossOf(cell, isSpeed).value),
  );
  return [
    "The number in a marker is B; markers at the same place are stacked.",
    isSpeed ? "Lines are ranges over the rounds; hollow: the range contains 1." : "",
    points.length
      ? "Grey crosses: recorded results of many prompts, with 95 % intervals; height: answers equal to AR's."
      : "",
    missing.length ? `Not timed reliably: ${missing.map(cellName).join("; ")}.` : "",
  ]
    .filter(Boolean)
    .join(" ");
}

/** @type {(cell: Cell, ar: Cell, isSpeed: boolean) => GridMark} */
const placed = (cell, ar, isSpeed) => ({
  ...{ cell, across: acrossOf(cell, isSpeed) },
  height: 100 * agreement(cell.lane, ar.lane),
  same: [],
});

/** @type {(cell: Cell, ar: Cell, isSpeed: boolean) => boolean} */
const isPlaced = (cell, ar, isSpeed) =>
  Number.isFinite(agreement(cell.lane, ar.lane)) && Number.isFinite(acrossOf(cell, isSpeed).value);

/**
 * Returns tokens per pass by τ and B, with agreement in the text of each cell.
 * @param {GridState} grid
 * @param {Colours} c
 * @returns {Figure | null}
 */
export function heatFigure({ rows, references: [ar] }, c) {
  if (!rows.length) return null;
  /** @param {(cell: Cell) => unknown} of */
  const table = (of) => rows.map((cells) => cells.map(of));
  /** @param {Cell} cell */
  const tokens = ({ lane }) => (lane.steps.length ? folds.perForward(lane) : null);
  const colours = [c.page, c.bars[1], c.bars[2]]; // the text is readable on all of them
  const trace = {
    ...{ type: "heatmap", hoverinfo: "text", showscale: false, xgap: 3, ygap: 3, zmin: 1 },
    x: rows[0].map(({ blockSize }) => `B ${blockSize}`),
    y: rows.map(([{ row }]) => (row ? rowName(row) : "")),
    z: table(tokens),
    zmax: Math.max(1.5, ...rows.flat().map((cell) => tokens(cell) ?? 0)),
    customdata: table(({ name }) => name),
    text: table((cell) => {
      const value = tokens(cell);
      return value === null ? "" : `<b>${figure(value)}</b><br>${percent(agreement(cell.lane, ar.lane))}`;
    }),
    hovertext: table((cell) => hover(cellLines(cell, ar))),
    texttemplate: "%{text}",
    textfont: { size: 13, color: c.ink },
    colorscale: colours.map((color, i) => [i / (colours.length - 1), color]),
  };
  const plain = { showgrid: false, ticks: "", linecolor: c.page };
  const [across, down] = [axis(c, "", { ...plain, side: "top" }), axis(c, "", { ...plain, autorange: "reversed" })];
  return { data: [trace], layout: layout(c, across, down, { margin: { l: 76, r: 8, t: 28, b: 4 } }) };
}
