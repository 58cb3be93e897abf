// Prints what the page shows of races, as JSON. Input: for each race the lines of the traces of two lanes.

import { readFileSync } from "node:fs";

import { passesFigure, timeFigure } from "../../assets/web/charts/specs.js";
import { acceptedDrafts, folds, passesSaved } from "../../assets/web/core/folds.js";
import { resultOf } from "../../assets/web/core/result.js";
import { Lane } from "../../assets/web/core/trace.js";
import { stepsCsv } from "../../assets/web/export/files.js";

const C = { bars: [], runs: [], mars: "", ar: "", lookup: "", warm: "", ink: "", muted: "", line: "" };

const shown = JSON.parse(readFileSync(0, "utf-8")).map((race) => {
  const lanes = race.map((lines, i) => Lane.of(lines, { lane: i ? "ar" : "mars", title: i ? "plain AR" : "MARS" }));
  const curves = timeFigure(lanes, C).data;
  const { first, rest, figures } = resultOf(lanes[0], [lanes[1]]);
  const figuresOf = (lane, i) => ({
    tokens: folds.tokens(lane),
    passes: folds.forwards(lane),
    bars: passesFigure(lane, C, true).data[0].x.length,
    curve: curves[i].y.at(-1),
    exported: [...stepsCsv(lane).matchAll(/^\d+,[\d.]+,[\d.]+,(\d+),/gm)].reduce((sum, row) => sum + Number(row[1]), 0),
    accepted: lane.steps.reduce((sum, step) => sum + acceptedDrafts(step), 0),
    saved: passesSaved(lane),
  });
  return { headline: first + rest, figures, lanes: lanes.map(figuresOf) };
});
process.stdout.write(JSON.stringify(shown));
