// Reads and writes values: texts in which views receive and exchange runs. The first line of a value describes the run
// as JSON; its `from` is the number of the following line within the run (0 if absent). Further lines are
// `<tag>\t<JSON>`: a trace line, tagged with the name of its lane, side or cell, or a line tagged `verdict`, `pace`,
// `status`, `totals` or `figures`. app/ui/stream.py writes the same format.

/** @type {(tag: string, text: string) => string} */
export const lineOf = (tag, text) => `${tag}\t${text}`;

/** Splits a line into its tag and its text. @param {string} line @returns {[tag: string, text: string]} */
export function parted(line) {
  const tab = line.indexOf("\t");
  return [line.slice(0, tab), line.slice(tab + 1)];
}

/**
 * Returns a whole value: the first line, the lines of the lanes in order, the verdicts on the lanes' answers, and
 * further lines (`more`).
 * @param {RaceHead} head @param {{ name: string, lines: string[], verdict: boolean | null }[]} lanes
 * @param {string[]} [more]
 */
export function valueOf(head, lanes, more = []) {
  const lines = lanes.flatMap((lane) => lane.lines.map((line) => lineOf(lane.name, line)));
  const verdicts = lanes
    .filter((lane) => typeof lane.verdict === "boolean")
    .map(({ name, verdict }) => lineOf("verdict", JSON.stringify({ lane: name, right: verdict })));
  return [JSON.stringify(head), ...lines, ...verdicts, ...more].map((line) => `${line}\n`).join("");
}

/** @param {Note} note */
export const statusLine = (note) => lineOf("status", JSON.stringify(note));

/**
 * Parses a whole value into its first line (head) and the tag and text of each further line.
 * @param {string} value @returns {{ head: RaceHead, lines: [tag: string, text: string][] }}
 */
export function readValue(value) {
  const [head, ...lines] = value.split("\n");
  return { head: JSON.parse(head), lines: lines.filter(Boolean).map(parted) };
}
