// What a race by passes comes to, in one sentence, and beneath it whom that is owed to and how it was in seconds. Words
// alone; every number is a fold of the lanes as they are shown.

import { button, make, put } from "../../core/dom.js";
import { folds, headerOf } from "../../core/folds.js";
import { loopText } from "../../core/loops.js";
import { isSameText, passesNote, passesText, secondsText } from "../../core/result.js";
import { savedText } from "../../core/sources.js";
import { laneSpeedup } from "../../core/speedup.js";
import { counted, figure, joined, whole } from "../../core/words.js";

/** @param {number} number */
const passes = (number) => counted(number, "pass", "passes");

/** @param {Lane} lane */
const titled = ({ title }) => `${title[0].toUpperCase()}${title.slice(1)}`;

/**
 * What comes first is the main lane's; then what the others needed, or where they are while they still run. Passes of the
 * same text are compared as totals, those of different texts per token. Where a text repeats itself that comes first, and
 * everything counts up to there.
 * @param {Lane} main
 * @param {Lane[]} others
 * @param {Compared | null} found of the two texts, where there are two
 * @returns {[first: string, rest: string]}
 */
export function headlineOf(main, others, found) {
  const [num, forwards] = [folds.tokens(main), folds.forwards(main)];
  if (!forwards) return ["", ""];
  const loop = loopText([main, ...others]);
  /** @type {(own: string, more: string) => [first: string, rest: string]} */
  const said = (own, more) => (loop ? [`${loop}.`, `Up to there: ${own} ${more}`.trimEnd()] : [own, more]);
  if (!main.end) {
    const sentence = `${counted(num, "token")} in ${passes(forwards)}.`;
    return loop ? said(sentence, "") : ["", sentence];
  }
  const isSame = others.every((lane) => !lane.end || isSameText(main, lane));
  const told = others.map((lane) =>
    lane.end
      ? `${titled(lane)}: ${isSame ? whole(folds.forwards(lane)) : figure(folds.perForward(lane))}.`
      : `${titled(lane)} is at token ${whole(lane.tokens.length)}.`,
  );
  if (!others.length) told.push(`${counted(num, "token")}.`);
  else if (found?.isSame) told.push("The same text, token for token.");
  else if (found?.isShown) told.push(`The texts differ from token ${whole(found.place + 1)} on.`);
  const own = passesText(main, isSame);
  return said(loop && isSame && others.length ? `${own} for ${counted(num, "token")}.` : `${own}.`, told.join(" "));
}

/** @param {Lane} main */
export const paceText = (main) => (main.steps.length ? `${figure(folds.perForward(main))} tokens per pass` : "");

/**
 * Whether the page around can run a lane again: there is one, and no conversation or given text came before the prompt.
 * @param {Lane} main
 */
const canRepeat = ({ end, header }) =>
  Boolean(end && header && !header.history?.length && !header.num_given && document.getElementById("ask"));

export class Headline {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.first = make("b");
    this.rest = make("span");
    this.because = make("p", "rv-because rv-num");
    this.again = button({ class: "rv-again", hidden: "" }, "Measure again", () => this.measureAgain());
    element.replaceChildren(make("p", "rv-saying rv-num", this.first, " ", this.rest), this.because, this.again);
    /** @type {Lane | null} */
    this.main = null;
  }

  // Asks the page to run the prompt again with the same settings.
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
    put(this.because, joined(savedText(main), paceText(main), passesNote(main), secondsText(main, other)));
    this.main = main;
    this.again.hidden = !(other?.end && canRepeat(main) && laneSpeedup(main, other).kind === "busy");
  }
}
