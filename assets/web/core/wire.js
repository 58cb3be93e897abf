// The lines that views receive and exchange: the only place where they are written and read. The first line is the run
// as JSON, with `from`, the number of the line after it (0 if absent). Further lines are `<tag>\t<JSON>`: the tag is a
// lane, side or cell with a trace line, or `verdict`, `pace`, `status`, `totals`, `figures`. app/ui/run_log.py writes the
// same.

/** @type {(tag: string, text: string) => string} */
export const lineOf = (tag, text) => `${tag}\t${text}`;

/**
 * Returns [tag, text] of a line.
 * @param {string} line
 * @returns {[tag: string, text: string]}
 */
export function parted(line) {
  const tab = line.indexOf("\t");
  return [line.slice(0, tab), line.slice(tab + 1)];
}

/**
 * Returns a whole value: its first line, the lines of its lanes in order, and the verdicts on their answers.
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
 * Parses a whole value: { head, lines: [[tag, text], ...] }.
 * @param {string} value
 * @returns {{ head: RaceHead, lines: [tag: string, text: string][] }}
 */
export function readValue(value) {
  const [head, ...lines] = value.split("\n");
  return { head: JSON.parse(head), lines: lines.filter(Boolean).map(parted) };
}

export class Feed {
  /** @param {Sink} sink */
  constructor(sink) {
    this.sink = sink;
    /** @type {string | null} */
    this.run = null;
    /** @type {string[]} */
    this.lines = []; // not processed yet
    /** @type {string | null} */
    this.head = null;
    this.isSame = false; // whether the first line is the same as before
    this.isBehind = false;
    /** @type {boolean | string} */
    this.recorded = false; // when and on what the run was recorded; false for a live one
    this.begin = 0; // number of the value's first line
    this.taken = 0; // lines of the run
    this.offset = 0; // characters of the value
  }

  /**
   * A line counts only with its newline, so a value can be cut anywhere.
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
    this.isBehind = this.begin > this.taken; // lines are missing, until a value has them
    if (this.isBehind) return;
    const known = this.isSame ? this.offset : end + 1;
    const last = text.lastIndexOf("\n") + 1;
    const lines = last > known ? text.slice(known, last - 1).split("\n") : [];
    const fresh = this.isSame ? lines : lines.slice(this.taken - this.begin);
    for (const line of fresh) this.lines.push(line);
    this.taken += fresh.length;
    this.offset = last;
    this.isSame ||= this.begin + lines.length === this.taken; // not after an older value that is read again
  }

  /**
   * Handles a new first line: another run, or another window of this one.
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
   * Passes lines to the sink for at most `budget` milliseconds. Returns whether some are left for the next frame.
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
