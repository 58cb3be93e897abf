// What a race by passes comes to, in one sentence, and beneath it whom that is owed to and how it was in seconds. Words
// alone; every number is a fold of the lanes as they are shown.

import { make, put } from "../../core/dom.js";
import { folds, loopRemark } from "../../core/folds.js";
import { savedText } from "../../core/sources.js";
import { laneSpeedup, speedupText } from "../../core/speedup.js";
import { counted, figure, joined, whole } from "../../core/words.js";

/** @param {number} number */
const passes = (number) => counted(number, "pass", "passes");

/** @param {Lane} lane */
const titled = ({ title }) => `${title[0].toUpperCase()}${title.slice(1)}`;

/**
 * What comes first is the main lane's; then what the others needed, or where they are while they still run.
 * @param {Lane} main
 * @param {Lane[]} others
 * @param {Compared | null} found of the two texts, where there are two
 * @returns {[first: string, rest: string]}
 */
export function headlineOf(main, others, found) {
  const [num, forwards] = [main.tokens.length, main.steps.length];
  if (!forwards) return ["", ""];
  if (!main.end) return ["", `${counted(num, "token")} in ${passes(forwards)}.`];
  const told = others.map((lane) =>
    lane.end
      ? `${titled(lane)}: ${whole(lane.steps.length)}.`
      : `${titled(lane)} is at token ${whole(lane.tokens.length)}.`,
  );
  if (!others.length) told.push(`${counted(num, "token")}.`);
  else if (found?.isSame) told.push("The same text, token for token.");
  else if (found?.isShown) told.push(`The texts differ from token ${whole(found.place + 1)} on.`);
  return [`${passes(forwards)}.`, told.join(" ")];
}

/**
 * How it was by the other clock, once both lanes are over.
 * @param {Lane} main
 * @param {Lane | undefined} other
 */
export function secondsText(main, other) {
  if (!main.end || (other && !other.end)) return "";
  const own = `${figure(main.seconds)} s`;
  if (!other) return `In seconds, as measured: ${own}.`;
  const [found, theirs] = [laneSpeedup(main, other), `${other.title} ${figure(other.seconds)} s`];
  return `In seconds, as measured: ${own}, ${theirs}${found.kind === "none" ? "" : `: ${speedupText(found)}`}.`;
}

/**
 * How many tokens a pass gave; of a text that goes round in circles up to there, since that is easy to foresee.
 * @param {Lane} main
 */
export function paceText(main) {
  if (!main.steps.length) return "";
  const looped = loopRemark(main);
  return `${figure(folds.perForward(main))} tokens per pass${looped && ` ${looped}`}`;
}

export class Headline {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.first = make("b");
    this.rest = make("span");
    this.because = make("p", "rv-because rv-num");
    element.replaceChildren(make("p", "rv-saying rv-num", this.first, " ", this.rest), this.because);
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
    const seconds = secondsText(main, others.find((lane) => lane.isAr) || others[0]);
    put(this.because, joined(savedText(main), paceText(main), seconds));
  }
}
