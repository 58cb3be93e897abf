// The race view's row of figures, line about hardware, status sentence, legend, and announcements for screen readers.

import { find, legendItem, make, put, toggle } from "../../core/dom.js";
import { FINAL, folds } from "../../core/folds.js";
import { afterLoop } from "../../core/loops.js";
import { passCost } from "../../core/result.js";
import { DEFINITION, laneSpeedup, speedupRange, speedupText } from "../../core/speedup.js";
import { ENDS, LEGEND, STATUS } from "../../core/texts.js";
import { capital, counted, environment, figure, joined, milliseconds, rounded, short } from "../../core/words.js";

/** @type {[key: string, name: string, unit: string][]} */
const TIME = [
  ["seconds", "time to decode", "s"],
  ["speedup", "speed over AR", ""],
  ["pass", "what a pass costs here", "ms"],
  ["first", "time to first token", "ms"],
];

/**
 * Creates a large number with its name above it, its unit, and a remark below it.
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
 * Draws a speed comparison, with its range below it.
 * @param {ReturnType<typeof bigFigure>} cell
 * @param {Speedup} speedup
 * @param {string} name
 */
export function drawSpeedup({ list, title, number, sub }, speedup, name) {
  list.dataset.kind = speedup.kind;
  put(title, name);
  put(number, speedupText(speedup));
  put(sub, speedupRange(speedup));
}

// The figures of time, and a line about the hardware.
export class Figures {
  /** @type {Record<string, ReturnType<typeof bigFigure>>} */
  big;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.element = find(root, ".rv-figures");
    this.means = find(root, ".rv-means");
    this.env = find(root, ".rv-env");
  }

  /** @param {boolean} hasRace */
  build(hasRace) {
    const shown = TIME.filter(([key]) => hasRace || key !== "speedup");
    this.big = Object.fromEntries(shown.map(([key, name, unit]) => [key, bigFigure(key, name, unit)]));
    this.element.replaceChildren(...Object.values(this.big).map(({ list }) => list));
    put(this.means, hasRace ? `Speed: ${DEFINITION}` : "");
    put(this.env, "");
  }

  /**
   * @param {Lane} main
   * @param {Lane | undefined} other
   */
  update(main, other) {
    /** @type {(lane: Lane | undefined, text: (lane: Lane) => string) => string} */
    const beside = (lane, text) => (lane?.steps.length ? `${lane.title} ${text(lane)}` : "");
    const reused = main.reused ? `${counted(main.reused, "prompt token")} reused` : "";
    const [cost, compared] = passCost(main, other);
    this.set(
      "seconds",
      figure(folds.seconds(main)),
      beside(other, (lane) => `${figure(folds.seconds(lane))} s`),
    );
    this.set("pass", cost, compared);
    const first = beside(other, (lane) => `${milliseconds(folds.toFirst(lane))} ms`);
    this.set("first", milliseconds(folds.toFirst(main)), joined(first, reused));
    if (other) {
      const ratio = rounded(folds.seconds(other)) / rounded(folds.seconds(main)); // of the printed numbers, as in the headline
      drawSpeedup(this.big.speedup, { ...laneSpeedup(main, other), ratio }, `speed over ${other.title}`);
    }
    put(this.env, environment(main.header));
  }

  /**
   * @param {string} key
   * @param {string} value
   * @param {string} sub
   */
  set(key, value, sub) {
    put(this.big[key].number, value);
    put(this.big[key].sub, sub);
  }
}

/**
 * Returns the state of a run, as in the view's data-state attribute, and a sentence that describes it.
 * @param {Run | null} run
 * @param {Playhead} playhead position in the run
 * @returns {[state: string, sentence: string]}
 */
export function statusOf(run, playhead) {
  if (!run) return ["empty", STATUS.empty];
  const { lanes, note } = run;
  const failed = lanes.find((lane) => lane.end && lane.end.reason === "error");
  if (run.fault) return ["error", run.fault];
  if (failed) return ["error", failed.end?.message || STATUS.failed];
  if (lanes.length && lanes.every((lane) => lane.end)) {
    if (!playhead.isFollowing) return ["finished", STATUS.earlier];
    return playhead.isAtEnd || isStopped(lanes) ? finished(run) : ["finished", STATUS.landing];
  }
  if (!lanes.some((lane) => lane.steps.length))
    return ["waiting", (note.kind === "waiting" && note.text) || STATUS.waiting];
  if (run.pace > 0) {
    const times = short(run.pace + 1, 1); // a pause as long as N passes after each pass makes the run N + 1 times slower
    return ["slow", `Slow motion (${times}×): the model pauses between passes; pauses are not timed.`];
  }
  return ["running", lanes.length > 1 ? STATUS.turns : STATUS.alone];
}

/**
 * Returns whether the text of a lane was not completed.
 * @param {Lane[]} lanes
 */
const isStopped = (lanes) => lanes.some(({ end }) => !FINAL.has(end?.reason ?? ""));

/**
 * @param {Run} run
 * @returns {[state: string, sentence: string]}
 */
function finished({ lanes }) {
  const message = lanes.map((lane) => lane.end?.message).find(Boolean);
  const isUnbegun = lanes.every(({ steps }) => !steps.length);
  if (isStopped(lanes)) return ["stopped", message || (isUnbegun ? STATUS.unbegun : STATUS.stopped)];
  if (message) return ["finished", message];
  const reasons = lanes.map((lane) => lane.end?.reason || "");
  const text =
    lanes.length > 1 && new Set(reasons).size === 1
      ? `${lanes.length === 2 ? "Both" : "All"} ${ENDS[reasons[0]].all}`
      : lanes.map(({ title }, i) => `${capital(title)}: ${ENDS[reasons[i]]?.one || reasons[i]}`).join("; ");
  return ["finished", `${text}.`];
}

// Creates the legend entries for the marks that occur in most texts.
export function textKeys() {
  const keys = make("span", "rv-keys");
  for (const n of [2, 3, 4, 5]) keys.append(make("span", `rv-swatch rv-c rv-n${n}`, n === 5 ? "5+" : String(n)));
  return [
    legendItem("rv-swatch rv-by-ar", LEGEND.pass),
    make("span", "", keys, ` ${LEGEND.masks}`),
    legendItem("rv-swatch rv-by rv-by-lookup", LEGEND.lookup),
  ];
}

/**
 * Builds the legend of the marks in a text. Rare marks are shown on demand, those of all differences while they are in
 * the texts.
 * @param {HTMLElement} element
 * @param {(isOn: boolean) => void} onCounts
 * @param {boolean} isOn
 */
export function buildLegend(element, onCounts, isOn) {
  const more = make(
    "span",
    "rv-more-marks",
    legendItem("rv-ghost", LEGEND.rejected),
    legendItem("rv-draft", LEGEND.pending),
    legendItem("rv-wrong", LEGEND.wrong),
    legendItem("rv-mark", LEGEND.differs),
    toggle(LEGEND.sizes, isOn, onCounts),
  );
  more.hidden = true;
  const differences = make(
    "span",
    "rv-more-marks rv-difference-marks",
    legendItem("rv-own", LEGEND.own),
    legendItem("rv-missing", LEGEND.missing),
  );
  element.replaceChildren(
    ...textKeys(),
    differences,
    more,
    toggle(LEGEND.more, false, (isShown) => {
      more.hidden = !isShown;
    }),
  );
}

const PAUSE = 1000; // milliseconds

// Announces the progress and the end of a run to screen readers, at most once per second during the run.
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
  announce(state, sentence, main, playhead) {
    const now = performance.now();
    const isEnd = playhead.isFollowing && playhead.isAtEnd && !["running", "slow", "waiting"].includes(state);
    if (!isEnd && now - this.saidAt < PAUSE) return;
    this.saidAt = now;
    const { steps, tokens } = main;
    const step = steps[steps.length - 1];
    const running = step
      ? `Pass ${steps.length}: ${counted(step.count, "token")} accepted, ${tokens.length} in total.`
      : sentence;
    const counts = `${counted(folds.tokens(main), "token")} in ${counted(folds.forwards(main), "pass", "passes")}.`;
    const over = `${sentence} ${afterLoop([main], counts)}`;
    put(this.element, isEnd ? over : running);
  }
}
