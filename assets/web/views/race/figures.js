// The row of figures, the line about hardware, the status sentence, the legend. Text only; every number is a fold of
// the lanes.

import { find, make, put, toggle } from "../../core/dom.js";
import { folds, loopRemark } from "../../core/folds.js";
import { HELP, helpFor } from "../../core/help.js";
import { afterLoop } from "../../core/loops.js";
import { laneSpeedup, speedupParts, speedupRange, speedupRemark } from "../../core/speedup.js";
import { counted, environment, figure, milliseconds, short, whole } from "../../core/words.js";

const BIG = [
  ["perForward", "tokens per forward", "TPF"],
  ["speedup", "speed over plain AR", ""],
  ["perSecond", "tokens per second", "tok/s"],
  ["forward", "mean time of a forward", "ms"],
];
const SMALL = [
  ["first", "to first token"],
  ["saved", "forwards saved"],
];

/**
 * A large number with its name above, its unit, and a remark below.
 * @param {string} key
 * @param {string} name
 * @param {string} unit
 */
export function bigFigure(key, name, unit) {
  const [title, number, sub] = [make("span", "", name), new Text("–"), make("dd", "rv-sub rv-num")];
  const small = make("small", "", unit);
  const value = make("dd", "rv-value rv-num", number, small);
  return {
    title,
    number,
    unit: small,
    sub,
    list: make("dl", { class: "rv-figure", "data-key": key }, make("dt", "", title), value, sub),
  };
}

/**
 * Draws a speedup as a large number, with its range and a recommendation below.
 * @param {ReturnType<typeof bigFigure>} cell
 * @param {Speedup} found
 * @param {string} name
 */
export function drawSpeedup({ list, title, number, unit, sub }, found, name) {
  const [value, words] = speedupParts(found);
  list.dataset.kind = found.kind;
  put(title, name);
  put(number, value);
  put(unit, words);
  const said = [speedupRange(found), speedupRemark(found)].filter(Boolean).join("; ");
  put(sub, said);
  sub.title = said; // narrow pages truncate it
}

export class Figures {
  /** @type {Record<string, ReturnType<typeof bigFigure>>} */
  big;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.element = find(root, ".rv-figures");
    this.env = find(root, ".rv-env");
    this.small = Object.fromEntries(SMALL.map(([key]) => [key, make("dd", "", "–")]));
  }

  /** @param {boolean} hasRace */
  build(hasRace) {
    this.big = Object.fromEntries(
      BIG.filter(([key]) => hasRace || key !== "speedup").map(([key, name, unit]) => [key, bigFigure(key, name, unit)]),
    );
    for (const [key, { title }] of Object.entries(this.big)) if (key in HELP) title.after(" ", helpFor(key));
    const rows = SMALL.flatMap(([key, name]) => [make("dt", "", name), this.small[key]]);
    const lists = Object.values(this.big).map(({ list }) => list);
    this.element.replaceChildren(...lists, make("dl", "rv-small rv-num", ...rows));
    put(this.env, "");
  }

  /**
   * @param {Lane} main
   * @param {Lane | undefined} other
   */
  update(main, other) {
    const speed = folds.perSecond(main);
    const base = other ? folds.perSecond(other) : NaN;
    const beside = Number.isFinite(speed) && Number.isFinite(base) ? other : undefined;
    const [num, forwards] = [folds.tokens(main), folds.forwards(main)];
    if (other) drawSpeedup(this.big.speedup, laneSpeedup(main, other), `speed over ${other.title}`);
    this.set(
      "perForward",
      figure(folds.perForward(main)),
      loopRemark(main) || (forwards ? `${whole(num)} in ${counted(forwards, "forward")}` : ""),
    );
    this.set("perSecond", figure(speed), beside ? `${beside.title} ${figure(base)}` : "");
    this.set(
      "forward",
      milliseconds(folds.secondsPerForward(main)),
      beside ? `${beside.title} ${milliseconds(folds.secondsPerForward(beside))} ms` : "",
    );
    put(this.small.first, forwards ? firstText(main, beside) : "–");
    put(this.small.saved, forwards ? `${whole(num - forwards)} of ${whole(num)}` : "–");
    put(this.env, environment(main.header));
  }

  /**
   * @param {"perForward" | "perSecond" | "forward"} key
   * @param {string} value
   * @param {string} sub
   */
  set(key, value, sub) {
    const cell = this.big[key];
    if (!cell) return;
    put(cell.number, value);
    put(cell.sub, sub);
  }
}

/** @type {Record<string, string>} */
const ENDS = {
  eos: "reached the end of its text",
  limit: "reached the limit of tokens",
  repeats: "began to repeat itself",
  deadline: "ran out of time",
  cancelled: "was stopped",
  error: "failed",
};

/**
 * Describes how soon the first token came, and how much of the prompt came from the KV cache.
 * @param {Lane} main
 * @param {Lane | undefined} beside
 */
export function firstText(main, beside) {
  const said = [`${milliseconds(folds.toFirst(main))} ms`];
  if (beside) said.push(`${beside.title} ${milliseconds(folds.toFirst(beside))} ms`);
  if (main.reused) said.push(`${counted(main.reused, "prompt token")} reused`);
  return said.join(" · ");
}

const REPLAY = "An earlier moment of this run.";
const LANDING = "Computed to its end: the last passes are still being shown.";
const ALONE = "Running: the clock counts its passes.";
const TURNS = "Running in turns: each clock counts its own passes.";

/**
 * Returns [state, sentence] of the whole run; states are the values of the root's data-state.
 * @param {Run | null} run
 * @param {Playhead} playhead position in the run
 * @returns {[state: string, sentence: string]}
 */
export function statusOf(run, playhead) {
  if (!run) return ["empty", "Nothing has run yet. Write a prompt or take an example, then press Run."];
  const { lanes, note } = run;
  const failed = lanes.find((lane) => lane.end && lane.end.reason === "error");
  if (run.fault) return ["error", run.fault];
  if (failed) return ["error", failed.end?.message || "The run failed; run it again."];
  if (lanes.length && lanes.every((lane) => lane.end)) {
    if (!playhead.isFollowing) return ["finished", REPLAY];
    return playhead.isAtEnd ? finished(run) : ["finished", LANDING];
  }
  if (!lanes.some((lane) => lane.steps.length))
    return ["waiting", (note.kind === "waiting" && note.text) || "Waiting for the first forward."];
  if (run.pace > 0) {
    const times = short(run.pace + 1, 1); // a pause of N forwards after each makes it N + 1 times slower
    const rests = "the engine rests between passes while the clocks stand still";
    return ["slow", `Slow motion, ${times} times slower: ${rests}.`];
  }
  return ["running", lanes.length > 1 ? TURNS : ALONE];
}

/**
 * @param {Run} run
 * @returns {[state: string, sentence: string]}
 */
function finished(run) {
  const { lanes } = run;
  const isStopped = lanes.some((lane) => lane.end?.reason === "cancelled");
  const message = lanes.map((lane) => lane.end?.message).find(Boolean);
  const lengths = lanes.map((lane) => counted(lane.tokens.length, "token")).join(" and ");
  if (isStopped) return ["stopped", message || `Stopped after ${lengths}.`];
  if (message) return ["finished", message];
  const reasons = lanes.map((lane) => lane.end?.reason || "");
  const what =
    lanes.length > 1 && new Set(reasons).size === 1
      ? `${lanes.length === 2 ? "both" : "all"} ${ENDS[reasons[0]].replace("its text", "their texts").replace("itself", "themselves")}`
      : lanes.map((lane, i) => `${lane.title} ${ENDS[reasons[i]] || reasons[i]}`).join(", ");
  return ["finished", `Finished: ${what}.`];
}

/**
 * Builds the legend: the two marks that every text has, and the others on demand.
 * @param {HTMLElement} element
 * @param {(isOn: boolean) => void} onCounts
 * @param {boolean} isOn
 */
export function buildLegend(element, onCounts, isOn) {
  const keys = make("span", "rv-keys");
  for (const n of [2, 3, 4, 5]) keys.append(make("span", `rv-swatch rv-c rv-n${n}`, n === 5 ? "5+" : String(n)));
  /** @type {(className: string, sample: string, text: string) => HTMLElement} */
  const item = (className, sample, text) => make("span", "", make("span", className, sample), ` ${text}`);
  const more = make(
    "span",
    "rv-more-marks",
    item("rv-swatch rv-by rv-by-lookup", "text", "copied by prompt lookup"),
    item("rv-ghost", "text", "rejected"),
    item("rv-draft", "text", "not verified yet"),
    item("rv-wrong", "text", "AR would have chosen another token"),
    item("rv-mark", "text", "first difference"),
    toggle("group sizes", isOn, onCounts),
  );
  more.hidden = true;
  element.replaceChildren(
    item("rv-swatch rv-by-ar", "text", "one underline: written in one pass"),
    make("span", "", keys, " predicted by masks; the number of tokens in the pass"),
    more,
    toggle("more marks", false, (isShown) => {
      more.hidden = !isShown;
    }),
  );
}

const PAUSE = 1000; // milliseconds

// Messages of a race for screen readers: at most one polite sentence per second.
export class Voice {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.saidAt = 0;
  }

  /**
   * @param {string} state
   * @param {string} sentence
   * @param {Lane} main in its displayed state
   * @param {Playhead} playhead
   */
  say(state, sentence, main, playhead) {
    const now = performance.now();
    const isEnd = playhead.isFollowing && playhead.isAtEnd && !["running", "slow", "waiting"].includes(state);
    if (!isEnd && now - this.saidAt < PAUSE) return;
    this.saidAt = now;
    const { steps, tokens } = main;
    const step = steps[steps.length - 1];
    const running = step
      ? `Step ${steps.length}: ${counted(step.count, "token")} accepted, ${tokens.length} in all.`
      : sentence;
    const counts = `${counted(folds.tokens(main), "token")} in ${counted(folds.forwards(main), "forward")}.`;
    const over = `${sentence} ${afterLoop([main], counts)}`;
    put(this.element, isEnd ? over : running);
  }
}
