// The result of a race in passes, in one sentence, with who saved the passes and the result in seconds below. Words
// only; every number is a fold of the lanes in their displayed state.

import { button, make, put } from "../../core/dom.js";
import { folds, headerOf } from "../../core/folds.js";
import { loopText } from "../../core/loops.js";
import { breakEvenText, isSameText, passesNote, passesText, secondsText } from "../../core/result.js";
import { savedText } from "../../core/sources.js";
import { isTimed, laneSpeedup, speedupText } from "../../core/speedup.js";
import { capital, counted, figure, joined, whole } from "../../core/words.js";

/** @param {number} number */
const passes = (number) => counted(number, "pass", "passes");

/** @param {Lane} lane */
const titled = ({ title }) => capital(title);

/**
 * Returns the main lane's result, then that of the others, or their state while they run. Passes for the same text are
 * compared as totals, otherwise per token. If a text repeats itself, that comes first, and all figures count up to
 * there.
 * @param {Lane} main
 * @param {Lane[]} others
 * @param {Compared | null} found comparison of the texts, if there are two
 * @returns {[first: string, rest: string]}
 */
export function headlineOf(main, others, found) {
  const [num, forwards] = [folds.tokens(main), folds.forwards(main)];
  if (!forwards) return ["", ""];
  const loop = loopText([main, ...others]);
  /** @type {(own: string, more: string) => [first: string, rest: string]} */
  const said = (own, more) => (loop ? [`${loop}.`, ` Up to there: ${own}${more}`] : [own, more]);
  if (!main.end) {
    /** @param {Lane} lane */
    const inPasses = (lane) => (folds.forwards(lane) === forwards ? "" : ` in ${whole(folds.forwards(lane))}`);
    const rest = others.map((lane) => ` ${titled(lane)}: ${whole(folds.tokens(lane))}${inPasses(lane)}.`);
    const sentence = `${counted(num, "token")} in ${passes(forwards)}.${rest.join("")}`;
    return loop ? said(sentence, "") : ["", sentence];
  }
  const isSame = others.every((lane) => !lane.end || isSameText(main, lane));
  const own = passesText(main, isSame);
  if (others.length === 1 && others[0].end) return said(...pairOf(own, main, others[0], found));
  const told = others.map((lane) =>
    lane.end
      ? `${titled(lane)}: ${isSame ? whole(folds.forwards(lane)) : figure(folds.perForward(lane))}.`
      : `${titled(lane)} is at token ${whole(lane.tokens.length)}.`,
  );
  if (!others.length) told.push(`${counted(num, "token")}.`);
  return said(
    loop && isSame && others.length ? `${own} for ${counted(num, "token")}.` : `${own}.`,
    ` ${told.join(" ")}`,
  );
}

/**
 * Returns the result of a race between two lanes, of which both have ended: passes, text, speed.
 * @param {string} own
 * @param {Lane} main
 * @param {Lane} other
 * @param {Compared | null} found
 * @returns {[first: string, rest: string]}
 */
function pairOf(own, main, other, found) {
  const isSame = isSameText(main, other);
  const speed = laneSpeedup(main, other);
  const same = found?.isSame ? " for the same text" : "";
  const faster = isTimed(speed) ? `, ${speedupText(speed)}` : "";
  const differ = found?.isShown && !found.isSame ? ` The texts diverge at token ${whole(found.place + 1)}.` : "";
  const instead = isSame ? whole(folds.forwards(other)) : figure(folds.perForward(other));
  return [`${own} instead of ${instead}`, `${same}${faster}.${differ}`];
}

/**
 * Whether the page can run the lane again: it has a form, and neither a conversation nor given text preceded the
 * prompt.
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

  // Requests another run of the prompt with the same settings.
  measureAgain() {
    if (!this.main) return;
    const { prompt, checkpoint, settings } = headerOf(this.main);
    const detail = { kind: "way", prompt, checkpoint, settings, limit: settings.max_new_tokens };
    this.again.dispatchEvent(new CustomEvent("mars-ask", { bubbles: true, detail }));
  }

  /**
   * @param {Lane} main
   * @param {Lane[]} others
   * @param {Compared | null} found
   */
  draw(main, others, found) {
    const [first, rest] = headlineOf(main, others, found);
    put(this.first, first);
    put(this.rest, rest);
    const other = others.find((lane) => lane.isAr) || others[0];
    const moved = main.moves.length > 0 && MOVED;
    put(this.because, joined(moved, savedText(main), breakEvenText(main, other), secondsText(main, other)));
    this.because.title = passesNote(main);
    this.main = main;
    this.again.hidden = !(other?.end && canRepeat(main) && laneSpeedup(main, other).kind === "busy");
  }
}
