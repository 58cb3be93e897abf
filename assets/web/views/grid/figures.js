// The two Plotly figures of the Trade-off view. Pure; no DOM.

import { axis, escaped, label, layout } from "../../charts/plot.js";
import { folds, lastOf } from "../../core/folds.js";
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

const MARGIN = { l: 56, r: 16, t: 8, b: 44 };
const [LOWEST, ABOVE] = [-6, 14]; // room below 0 and above 100 percent
const NARROW = 520; // pixels of a figure in which markers are small and near each other
const [LETTER, LINE] = [7.4, 17]; // pixels of a label: a letter's width, and the height

/**
 * Returns agreement with AR by tokens per pass or by speed: a line of markers for each row, each with its B, and the two
 * references.
 * @param {GridState} grid
 * @param {Colours} c
 * @param {Size} [size]
 * @returns {Figure}
 */
export function scatterFigure({ rows, references, points, isSpeed }, c, size = { width: 1200, height: 260 }) {
  const [ar, lookup] = references;
  const lines = [[ar], [lookup], ...[...rows].reverse()].map((cells) =>
    cells.filter((cell) => isPlaced(cell, ar, isSpeed)).map((cell) => placed(cell, ar, isSpeed)),
  );
  const measured = crosses(points, isSpeed ? "speed" : "tpf", c);
  const marks = lines.flat();
  const ends = isSpeed ? marks.flatMap(({ across: { low, high } }) => [low, high]) : [];
  const xs = [...marks.map(({ across }) => across.value), ...measured.x, ...ends].filter(Number.isFinite);
  const range = [Math.min(0.95, 0.92 * Math.min(...xs)), 1.08 * Math.max(1.4, ...xs)];
  const perPixel = (range[1] - range[0]) / Math.max(1, size.width - MARGIN.l - MARGIN.r);
  const beside = (size.width < NARROW ? 10 : 16) * perPixel; // between markers with equal values
  marks.forEach((mark, i) => {
    const before = marks.slice(0, i).filter((other) => isEqual(mark, other));
    mark.same = marks.filter((other) => other !== mark && isEqual(mark, other));
    mark.x = mark.across.value + before.length * beside;
  });
  const data = lines.map((line) => {
    const { cell } = line[0] ?? {};
    const isMars = Boolean(cell?.row);
    const color = isMars ? c.mars : cell === ar ? c.ar : c.lookup;
    const symbol = isMars ? (cell.row?.lossless ? "diamond" : "circle") : "square";
    return {
      ...{ type: "scatter", mode: "lines+markers+text", hoverinfo: "text", cliponaxis: false },
      x: line.map(({ x }) => x),
      y: line.map(({ height }) => height),
      text: line.map((mark) => (isMars ? String(mark.cell.blockSize) : "")),
      textfont: { size: 13, color: line.map((mark) => (isSpeed && !isClear(mark.cell) ? color : c.page)) },
      customdata: line.map((mark) => mark.cell.name),
      hovertext: line.map((mark) => hover(markLines(mark, ar))),
      line: { color, width: 1, dash: "dot" },
      marker: {
        symbol: line.map((mark) => (isSpeed && !isClear(mark.cell) ? `${symbol}-open` : symbol)),
        color,
        size: (symbol === "diamond" ? 22 : isMars ? 18 : 13) - (size.width < NARROW ? 2 : 0),
        line: { color: c.page, width: 1 },
      },
      ...(isSpeed && { error_x: bars(line.map(({ across }) => across), { color }) }), // prettier-ignore
    };
  });
  const across = axis(c, isSpeed ? "speed relative to AR" : "tokens per forward pass", { range, showgrid: false });
  const down = axis(c, "agreement with AR's text, %", {
    range: [LOWEST, 100 + ABOVE],
    tickvals: [0, 25, 50, 75, 100],
  });
  /** @type {(x: number, y: number) => number[]} the place in pixels */
  const place = (x, y) => [
    (x - range[0]) / perPixel,
    ((100 + ABOVE - y) / (100 + ABOVE - LOWEST)) * (size.height - MARGIN.t - MARGIN.b),
  ];
  const annotations = labels(lines, place, isSpeed, c);
  return { data: [measured, ...data], layout: layout(c, across, down, { margin: MARGIN, annotations }) };
}

/** @type {(mark: GridMark, other: GridMark) => boolean} */
const isEqual = (mark, other) =>
  Math.abs(mark.across.value - other.across.value) < 0.002 && Math.abs(mark.height - other.height) < 0.1;

/**
 * Returns the description of a mark, and the names of the cells with equal values.
 * @param {GridMark} mark
 * @param {Cell} ar
 */
const markLines = ({ cell, same }, ar) => [
  ...cellLines(cell, ar),
  ...(same.length ? [`equal: ${same.map((other) => cellName(other.cell)).join("; ")}`] : []),
];

/**
 * Returns a label at the last mark of each line, on the side where it covers least.
 * @param {GridMark[][]} lines
 * @param {(x: number, y: number) => number[]} place
 * @param {boolean} isSpeed
 * @param {Colours} c
 */
function labels(lines, place, isSpeed, c) {
  /** @type {number[][]} left, top, right, bottom, weight */
  const taken = [];
  /** @type {(x: number, y: number, w: number, h: number, weight: number) => number[]} */
  const box = (x, y, w, h, weight) => [x - w / 2, y - h / 2, x + w / 2, y + h / 2, weight];
  for (const line of lines) {
    line.forEach(({ x, height, across: { low, high } }, i) => {
      const [left, top] = place(x, height);
      taken.push(box(left, top, 20, 20, 10));
      if (isSpeed) taken.push([place(low, height)[0], top - 1, place(high, height)[0], top + 1, 2]);
      if (!i) return;
      const [from, to] = [place(line[i - 1].x, line[i - 1].height), [left, top]];
      const num = Math.ceil(Math.hypot(to[0] - from[0], to[1] - from[1]) / 12);
      for (let k = 1; k < num; k += 1)
        taken.push(box(from[0] + ((to[0] - from[0]) * k) / num, from[1] + ((to[1] - from[1]) * k) / num, 8, 4, 1));
    });
  }
  const bottom = place(0, LOWEST)[1];
  return lines
    .filter((line) => line.length)
    .map((line) => {
      const { cell, x, height } = lastOf(line);
      const name = cell.row ? rowName(cell.row) : cellName(cell);
      const [left, top] = place(x, height);
      const width = LETTER * name.length;
      const beside = width / 2 + 14;
      const sides = [0, 0.5, 1, 2].flatMap((far) => [
        [0, -19 - 18 * far],
        [0, 19 + 18 * far],
        [beside, -18 * far],
        [-beside, -18 * far],
        [beside, 18 * far],
        [-beside, 18 * far],
      ]);
      /** @param {number[]} side */
      const cost = ([dx, dy]) => {
        const own = box(left + dx, top + dy, width, LINE, 0);
        const isOut = own[0] < -10 || own[1] < -MARGIN.t || own[3] > bottom + 4;
        const covered = taken.filter((b) => own[0] < b[2] && b[0] < own[2] && own[1] < b[3] && b[1] < own[3]);
        return covered.reduce((sum, b) => sum + b[4], isOut ? 100 : 0);
      };
      const [dx, dy] = sides.reduce((best, side) => (cost(side) < cost(best) ? side : best));
      taken.push(box(left + dx, top + dy, width, LINE, 60));
      return label(name, x, height, cell.row ? c.mars : c.muted, { xanchor: "center", xshift: dx, yshift: -dy });
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
    "The number in a marker is B; markers with equal values are side by side.",
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
  x: NaN,
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
