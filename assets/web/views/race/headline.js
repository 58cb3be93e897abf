// The headline of a race: its result in passes, and below it which drafters saved the passes and the result in seconds.
// All numbers are computed from the lanes in their displayed state.

import { button, make, put } from "../../core/dom.js";
import { folds, headerOf } from "../../core/folds.js";
import { loopText } from "../../core/loops.js";
import { breakEvenText, isSameText, passesNote, passesText, secondsText } from "../../core/result.js";
import { savedText } from "../../core/sources.js";
import { laneSpeedup, speedClause } from "../../core/speedup.js";
import { capital, counted, figure, joined, whole } from "../../core/words.js";

/** @param {number} number */
const passes = (number) => counted(number, "pass", "passes");

/** @param {Lane} lane */
const titled = ({ title }) => capital(title);

/**
 * Returns the sentence of the headline in two parts: the main lane's result in passes, and the results of the other
 * lanes, or their progress while they run. If all texts are the same, total passes are compared, otherwise tokens per
 * pass. If a text repeats itself, the sentence begins by naming that position, and all figures count only the text
 * before it.
 * @param {Lane} main
 * @param {Lane[]} others
 * @param {Compared | null} comparison comparison of the texts, if there are two
 * @returns {[first: string, rest: string]}
 */
export function headlineOf(main, others, comparison) {
  const [num, forwards] = [folds.tokens(main), folds.forwards(main)];
  if (!forwards) return ["", ""];
  const loop = loopText([main, ...others]);
  /** @type {(result: string, more: string) => [first: string, rest: string]} */
  const parts = (result, more) => (loop ? [`${loop}.`, ` Up to that point: ${result}${more}`] : [result, more]);
  if (!main.end) {
    const sentence = others.length
      ? progressText([main, ...others])
      : `${counted(num, "token")} in ${passes(forwards)}.`;
    return loop ? parts(sentence, "") : ["", sentence];
  }
  const isSame = others.every((lane) => !lane.end || isSameText(main, lane));
  const result = passesText(main, isSame);
  if (others.length === 1 && others[0].end) return parts(...pairOf(result, main, others[0], comparison));
  const results = others.map((lane) =>
    lane.end
      ? `${titled(lane)}: ${isSame ? whole(folds.forwards(lane)) : figure(folds.perForward(lane))}.`
      : `${titled(lane)} is at token ${whole(lane.tokens.length)}.`,
  );
  if (!others.length) results.push(`${counted(num, "token")}.`);
  return parts(
    loop && isSame && others.length ? `${result} for ${counted(num, "token")}.` : `${result}.`,
    ` ${results.join(" ")}`,
  );
}

/**
 * Describes how far several lanes are, in one sentence if all have made the same number of passes.
 * @param {Lane[]} lanes
 */
function progressText(lanes) {
  const [first, ...others] = lanes.map((lane) => ({
    title: lane.title,
    tokens: folds.tokens(lane),
    forwards: folds.forwards(lane),
  }));
  if (others.some(({ forwards }) => forwards !== first.forwards))
    return lanes
      .map((lane) => `${titled(lane)}: ${counted(folds.tokens(lane), "token")} in ${passes(folds.forwards(lane))}.`)
      .join(" ");
  const otherTexts = others.map(({ title, tokens }) => `, ${title} ${whole(tokens)}`);
  return `After ${passes(first.forwards)}: ${first.title} has written ${counted(first.tokens, "token")}${otherTexts.join("")}.`;
}

/**
 * Returns the headline of a finished race between two lanes: passes, comparison of the texts, speed.
 * @param {string} result the main lane's result in passes
 * @param {Lane} main
 * @param {Lane} other
 * @param {Compared | null} comparison
 * @returns {[first: string, rest: string]}
 */
function pairOf(result, main, other, comparison) {
  const isSame = isSameText(main, other);
  const same = comparison?.isSame ? " for the same text" : "";
  const speed = speedClause(laneSpeedup(main, other));
  const differ =
    comparison?.isShown && !comparison.isSame ? ` The texts diverge at token ${whole(comparison.place + 1)}.` : "";
  const instead = isSame ? whole(folds.forwards(other)) : figure(folds.perForward(other));
  return [`${result} instead of ${instead}`, `${same}${speed}.${differ}`];
}

/**
 * Returns whether the page can run the lane again: the page has the controls of a run, and the lane had neither earlier
 * turns nor a given beginning of its answer.
 * @param {Lane} main
 */
const canRepeat = ({ end, header }) =>
  Boolean(end && header && !header.history?.length && !header.num_given && "start" in window.mars);

const MOVED = "settings were changed during the run";

export class Headline {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.first = make("b");
    this.rest = make("span");
    this.because = make("p", "rv-because rv-num");
    this.again = button({ class: "rv-again", hidden: "" }, "Measure again", () => this.measureAgain());
    element.replaceChildren(make("p", "rv-saying rv-num", this.first, this.rest), this.because, this.again);
    /** @type {Lane | null} */
    this.main = null;
  }

  measureAgain() {
    if (!this.main) return;
    const { prompt, checkpoint, settings } = headerOf(this.main);
    const detail = { kind: "way", prompt, checkpoint, settings, limit: settings.max_new_tokens };
    this.again.dispatchEvent(new CustomEvent("mars-ask", { bubbles: true, detail }));
  }

  /**
   * @param {Lane} main
   * @param {Lane[]} others
   * @param {Compared | null} comparison
   */
  draw(main, others, comparison) {
    const [first, rest] = headlineOf(main, others, comparison);
    put(this.first, first);
    put(this.rest, rest);
    const other = others.find((lane) => lane.isAr) || others[0];
    const moved = main.moves.length > 0 && MOVED;
    put(this.because, joined(moved, secondsText(main, other), savedText(main), breakEvenText(main, other)));
    this.because.title = passesNote(main);
    this.main = main;
    this.again.hidden = !(other?.end && canRepeat(main) && laneSpeedup(main, other).kind === "busy");
  }
}
