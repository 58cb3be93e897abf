// Reads and writes values: texts in which views receive and exchange runs. The first line of a value describes the run
// as JSON; its `from` is the number of the following line within the run (0 if absent). Further lines are
// `<tag>\t<JSON>`: a trace line, tagged with the name of its lane, side or cell, or a line tagged `verdict`, `pace`,
// `status`, `totals` or `figures`. app/ui/stream.py writes the same format.

/** @type {(tag: string, text: string) => string} */
export const lineOf = (tag, text) => `${tag}\t${text}`;

/**
 * Splits a line into its tag and its text.
 * @param {string} line
 * @returns {[tag: string, text: string]}
 */
export function parted(line) {
  const tab = line.indexOf("\t");
  return [line.slice(0, tab), line.slice(tab + 1)];
}

/**
 * Returns a whole value: the first line, the lines of the lanes in order, the verdicts on the lanes' answers, and
 * further lines (`more`).
 * @param {RaceHead} head
 * @param {{ name: string, lines: string[], verdict: boolean | null }[]} lanes
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
 * @param {string} value
 * @returns {{ head: RaceHead, lines: [tag: string, text: string][] }}
 */
export function readValue(value) {
  const [head, ...lines] = value.split("\n");
  return { head: JSON.parse(head), lines: lines.filter(Boolean).map(parted) };
}

export class LogReader {
  /** @param {Sink} sink */
  constructor(sink) {
    this.sink = sink;
    /** @type {string | null} */
    this.run = null;
    /** @type {string[]} */
    this.lines = []; // not processed yet
    /** @type {string | null} */
    this.head = null;
    this.isSame = false; // whether the first line is the same as in the previous value
    this.isBehind = false;
    /** @type {boolean | string} */
    this.recorded = false; // when and on what the run was recorded; false for a live one
    this.begin = 0; // number, within the run, of the value's first line
    this.taken = 0; // number of lines of the run that were read
    this.offset = 0; // number of characters of the value that were read
  }

  /**
   * Reads the new lines of a value. A line is read only once its newline has arrived, so a value may be cut anywhere.
   * @param {unknown} value
   */
  read(value) {
    const text = typeof value === "string" ? value : "";
    const end = text.indexOf("\n");
    if (end < 0) {
      if (this.run !== null && text === "") this.reset(null);
      return;
    }
    const head = text.slice(0, end);
    if (head !== this.head) this.readHead(head);
    this.isBehind = this.begin > this.taken; // lines between the last value and this one are missing
    if (this.isBehind) return;
    const known = this.isSame ? this.offset : end + 1;
    const last = text.lastIndexOf("\n") + 1;
    const lines = last > known ? text.slice(known, last - 1).split("\n") : [];
    const fresh = this.isSame ? lines : lines.slice(this.taken - this.begin);
    for (const line of fresh) this.lines.push(line);
    this.taken += fresh.length;
    this.offset = last;
    this.isSame ||= this.begin + lines.length === this.taken; // false if an older value was read again
  }

  /**
   * Handles a new first line, which begins another run or another part of the same run.
   * @param {string} head
   */
  readHead(head) {
    const parsed = JSON.parse(head);
    this.head = head;
    this.isSame = false;
    this.begin = parsed.from || 0;
    if (parsed.run !== this.run) this.reset(parsed);
  }

  /** @param {Head | null} parsed */
  reset(parsed) {
    this.run = parsed && parsed.run;
    this.recorded = parsed?.recorded ?? false;
    if (!parsed) this.head = null;
    this.taken = 0;
    this.lines = [];
    if (parsed) this.sink.start(parsed);
    else this.sink.clear();
  }

  /**
   * Passes waiting lines to the view for at most `budget` milliseconds. Returns whether lines are left for the next
   * frame.
   * @param {number} budget
   */
  work(budget) {
    const until = performance.now() + budget;
    let count = 0;
    while (count < this.lines.length && performance.now() < until) {
      const [tag, text] = parted(this.lines[count]);
      count += 1;
      this.sink.line(tag, JSON.parse(text), text);
    }
    this.lines.splice(0, count);
    return this.lines.length > 0;
  }
}
