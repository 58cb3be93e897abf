// The lines that views are sent and send each other: the one place where they are read and written.
// First line: the run as JSON, with `from`, the number of the line that follows it (0 if absent). Further lines:
// `<tag>\t<JSON>`, the tag a lane, side or cell with a trace line, or `verdict`, `pace`, `status`, `totals`, `figures`.
// app/run_log.py writes the same.

/**
 * @param {string} tag
 * @param {string} text
 */
export const lineOf = (tag, text) => `${tag}\t${text}`;

/**
 * [tag, text] of a line.
 * @param {string} line
 * @returns {[tag: string, text: string]}
 */
export function parted(line) {
  const tab = line.indexOf("\t");
  return [line.slice(0, tab), line.slice(tab + 1)];
}

/**
 * A whole value: its first line and the lines of its lanes in their order, then what was found of their answers.
 * @param {RaceHead} head
 * @param {{ name: string, lines: string[], verdict: boolean | null }[]} lanes
 * @param {string[]} [more]
 */
export function valueOf(head, lanes, more = []) {
  const lines = lanes.flatMap((lane) => lane.lines.map((line) => lineOf(lane.name, line)));
  const verdicts = lanes.filter((lane) => typeof lane.verdict === "boolean").map(verdictLine);
  return [JSON.stringify(head), ...lines, ...verdicts, ...more].map((line) => `${line}\n`).join("");
}

/** @param {{ name: string, verdict: boolean | null }} given */
const verdictLine = ({ name, verdict }) => lineOf("verdict", JSON.stringify({ lane: name, right: verdict }));

/** @param {Note} note */
export const statusLine = (note) => lineOf("status", JSON.stringify(note));

/**
 * A whole value read: { head, lines: [[tag, text], ...] }.
 * @param {string} value
 * @returns {{ head: RaceHead, lines: [tag: string, text: string][] }}
 */
export function readValue(value) {
  const [head, ...lines] = value.split("\n");
  return { head: JSON.parse(head), lines: lines.filter(Boolean).map(parted) };
}
