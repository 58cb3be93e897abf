// The result of a measurement: MARS compared with plain AR in paired rounds, as a sentence, a table and a file.

import { button, make } from "../../core/dom.js";
import { download, textBlob } from "../../core/files.js";
import { ofRounds, speedupSentence } from "../../core/speedup.js";
import { SPEED } from "../../core/table.js";
import { counted, figure, short, whole } from "../../core/words.js";

/**
 * Returns the result in one sentence. It has a factor only if the whole range is above or below 1.
 * @param {MeasuredLine} measured
 */
export function measuredText({ mars, ar, rows, speedup, num_same: same, prompts }) {
  const texts = same === prompts.length ? "same texts" : `${whole(same)} of ${whole(prompts.length)} texts the same`;
  const passes =
    same === prompts.length
      ? `${whole(mars.passes)} passes instead of ${whole(ar.passes)}, ${texts}; ${speedupSentence(ofRounds(speedup))}`
      : `${figure(mars.tpf)} tokens per pass, AR ${figure(ar.tpf)}; ${texts}`;
  return `${counted(rows, "request")} at once: ${passes}.`;
}

/**
 * Returns the rates of a live run and of plain AR, measured before it. There is no factor, because neither was repeated,
 * and nothing before the first answer is complete.
 * @param {ThroughputState} state
 */
export function ratesText({ begin, level, moves, points, slots, tokens }) {
  const last = points.at(-1);
  if (begin?.method !== "mars" || begin.round || !level || !last?.done) return "";
  const rate = tokens / last.at;
  const why = level > rate * SPEED.near ? ": a pass with masks costs more here than the saved passes" : "";
  const taus = moves.map(({ move }) => short(move.tau)).filter((tau, i, all) => tau !== all[i - 1]);
  const at = taus.length > 1 && taus.length < 4 ? ` at τ ${taus.join(", then ")}` : "";
  return `${figure(rate)} tokens/s on average${at}; plain AR wrote ${figure(level)} with ${whole(slots.length)} at once${why}.`;
}

/**
 * Returns the elements that show a measurement; none before the first round.
 * @param {MeasuredLine | null} measured
 */
export function measuredParts(measured) {
  if (!measured) return [];
  const { speedup, date } = measured;
  const heads = [
    "",
    "tokens per second",
    `lowest to highest of ${counted(speedup.rounds, "round")}`,
    "passes",
    "tokens per pass",
  ];
  const table = make(
    "table",
    "rv-num",
    make("thead", "", make("tr", "", ...heads.map((head) => make("th", "", head)))),
    make("tbody", "", sideRow("MARS", measured.mars), sideRow("plain AR", measured.ar)),
  );
  const save = button("tv-save", "Save as JSON", () =>
    download(
      `mars-throughput-${date.slice(0, 10)}.json`,
      textBlob(JSON.stringify(measured, null, 1), "application/json"),
    ),
  );
  return [table, save];
}

/**
 * @param {string} name
 * @param {MeasuredSide} side
 */
function sideRow(name, { rate: [median, low, high], passes, tpf }) {
  const cells = [figure(median), `${figure(low)} to ${figure(high)}`, whole(passes), figure(tpf)];
  return make("tr", "", make("th", "", name), ...cells.map((text) => make("td", "", text)));
}
