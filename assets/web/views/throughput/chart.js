// The chart of a throughput run: tokens per second with plain AR's level, and below it tokens per pass.

import { axis, label, layout } from "../../charts/plot.js";
import { figure } from "../../core/words.js";
import { moveText } from "./state.js";

const margin = { l: 60, r: 16, t: 8, b: 38 };
const GAP = 0.12; // between the two parts, as a share of the height
const LEAST = 0.12; // time between two labelled moves, as a share of the axis, so that the labels do not overlap

/**
 * Returns the figure, or null before the first pass.
 * @param {ThroughputState} state
 * @param {Colours} c
 * @returns {Figure | null}
 */
export function throughputFigure({ points, moves, level, begin }, c) {
  if (!points.length) return null;
  const x = points.map(({ at }) => at);
  const color = begin?.method === "ar" ? c.ar : c.mars;
  /** @type {(key: "rate" | "tpf", yaxis: string, unit: string) => Json} */
  const line = (key, yaxis, unit) => ({
    ...{ type: "scatter", mode: "lines", x, y: points.map((point) => point[key]), yaxis, line: { width: 2, color } },
    hovertemplate: `%{y} ${unit} after %{x:.1f} s<extra></extra>`,
  });
  const most = {
    rate: Math.max(...points.map(({ rate }) => rate), level || 0),
    tpf: Math.max(...points.map(({ tpf }) => tpf), 2),
  };
  const end = Math.max(10, x[x.length - 1]);
  const rateAxis = axis(c, "tokens/s", { domain: [(1 + GAP) / 2, 1], range: [0, 1.4 * most.rate], nticks: 4 });
  const tpfAxis = axis(c, "per pass", {
    domain: [0, (1 - GAP) / 2],
    range: [0, 1.15 * most.tpf],
    nticks: 4,
    fixedrange: true,
  });
  const shapes = moves.filter(({ text }) => text).map(({ at }) => vertical(at, c));
  const labels = lasting(moves, Math.max(1, LEAST * end)).map(({ at, text }) =>
    label(text, at, 0.5, c.warm, { yref: "paper", ...(at > 0.85 * end ? { xanchor: "right", xshift: -4 } : {}) }),
  );
  if (Number.isFinite(level)) {
    shapes.push({
      type: "line",
      xref: "paper",
      x0: 0,
      x1: 1,
      y0: level,
      y1: level,
      line: { width: 2, dash: "dash", color: c.ar },
    });
    labels.push(label(`plain AR: ${figure(level)} tokens/s`, 0, level, c.ar, { yanchor: "bottom" }));
  }
  const xaxis = axis(c, "seconds of decoding", { range: [0, 1.02 * end], anchor: "y2" });
  return {
    data: [line("rate", "y", "tokens/s"), line("tpf", "y2", "tokens per pass")],
    layout: layout(c, xaxis, rateAxis, { yaxis2: tpfAxis, shapes, annotations: labels, margin }),
  };
}

/**
 * Returns the moves after which the settings stayed for some seconds, each with what changed since the one before.
 * @param {ThroughputState["moves"]} moves
 * @param {number} seconds
 */
function lasting(moves, seconds) {
  const lasted = moves.filter(({ at }, i) => i > 0 && !(moves[i + 1]?.at - at < seconds));
  return lasted.map(({ at, move }, i) => ({ at, text: moveText((lasted[i - 1] ?? moves[0]).move, move) }));
}

/**
 * A line through both parts, where the settings changed.
 * @param {number} at
 * @param {Colours} c
 * @returns {Json}
 */
const vertical = (at, c) => ({
  ...{ type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1 },
  line: { width: 1, dash: "dot", color: c.warm },
});
