// The result of a race: its headline in passes, and the figures beside it. Every view takes its words from here.
// `passesResult` is the same as `passes_result` in mars_runtime/runs/speedup.py; both are tested on the cases in
// tests/web/results.json. Pure; no DOM.

import { FINAL, folds } from "./folds.js";
import { loopPlace } from "./loops.js";
import { savedText } from "./sources.js";
import { differsAt, factorText, isTimed, laneSpeedup } from "./speedup.js";
import { SPEED } from "./table.js";
import { capital, counted, figure, joined, rounded, whole } from "./words.js";

/** @param {number} number */
const passes = (number) => counted(number, "pass", "passes");

/**
 * Returns the headline of two finished runs: "96 passes instead of 189" and ", same text". If the texts differ, the
 * passes of one do not stand for those of the other, and the headline has tokens per pass. differsAt: index of the first
 * token that differs; -1 if the texts are the same.
 * @param {{ tokens: number, forwards: number, baseline: number, name: string, differsAt: number }} given
 * @returns {[first: string, rest: string]}
 */
export function passesResult({ tokens, forwards, baseline, name, differsAt }) {
  if (differsAt >= 0)
    return [
      `${(tokens / Math.max(1, forwards)).toFixed(2)} tokens per pass`,
      `; the text differs from ${name}'s from token ${whole(differsAt + 1)} on`,
    ];
  const first =
    forwards === baseline
      ? `As many passes as ${name} (${whole(baseline)})`
      : `${passes(forwards)} instead of ${whole(baseline)}`;
  return [first, ", same text"];
}

/**
 * Returns the result in time, and the two numbers that it is computed from; ["", ""] before anything was measured.
 * mine, other: seconds of the two runs, or of each token. device: "this CPU" or the name of a GPU.
 * @param {Speedup} speedup @param {{ mine: number, other: number, unit: string, device: string }} given
 * @returns {[value: string, numbers: string]}
 */
export function timeResult(speedup, { mine, other, unit, device }) {
  if (speedup.kind === "none") return ["", ""];
  const numbers = `${figure(mine)} ${unit} instead of ${figure(other)}`;
  if (isTimed(speedup))
    return [`${factorText(rounded(other) / rounded(mine), speedup)} times as fast on ${device}`, numbers];
  return speedup.kind === "same"
    ? [`${SPEED.notes.same} on ${device}`, numbers]
    : [capital(SPEED.notes[speedup.kind]), ""];
}

/** @param {Lane} lane */
const isComplete = ({ end }) => FINAL.has(end?.reason ?? "");

/** @param {Lane} lane */
const nameOf = ({ isAr, title }) => (isAr ? "AR" : title);

/** Returns the device of a run in words. @param {Lane} lane @param {boolean} isRecorded */
export function deviceOf({ header }, isRecorded) {
  const hardware = header?.hardware || "CPU";
  const device = /\bcores?\b|^CPU$/.test(hardware) ? "CPU" : hardware;
  return isRecorded ? `the recorded ${device}` : `this ${device}`;
}

/**
 * Returns the result of a race in its displayed state. kind: "none" before the first pass; "running"; "stopped" if a
 * lane did not complete its text, so there is no verdict; "alone" for one lane; "same" or "different" for texts that
 * are compared. first, rest: the headline. figures: tokens per pass, the lanes that are not in the headline, time, and
 * where a text repeats itself.
 * @param {Lane} main @param {Lane[]} others @param {boolean} [isRecorded] @returns {RaceResult}
 */
export function resultOf(main, others, isRecorded = false) {
  const [tokens, forwards] = [folds.tokens(main), folds.forwards(main)];
  if (!forwards) return { kind: "none", first: "", rest: "", figures: [] };
  const lanes = [main, ...others];
  const loop = loopPlace(lanes);
  const loops = loop ? [{ key: "loop", value: loop, name: "not counted", numbers: "" }] : [];
  const numbers = joined(countsOf(main), savedText(main).includes(",") && savedText(main));
  const perPass = { key: "perPass", value: figure(tokens / forwards), name: "tokens per pass", numbers };
  if (lanes.some(({ end }) => !end) || !lanes.every(isComplete)) {
    const isRunning = lanes.some(({ end }) => !end);
    const first = isRunning ? "" : "Stopped. ";
    return {
      kind: isRunning ? "running" : "stopped",
      ...{ first, rest: progressText(lanes), figures: [perPass, ...loops] },
    };
  }
  const baseline = others.find((lane) => lane.isAr) ?? others[0];
  const device = deviceOf(main, isRecorded);
  if (!baseline) {
    const time = { key: "time", value: `${figure(folds.seconds(main))} s`, name: `on ${device}`, numbers: "" };
    return { kind: "alone", first: `${numbers}.`, rest: "", figures: [{ ...perPass, numbers: "" }, time, ...loops] };
  }
  const [place, theirs] = [differsAt(main, baseline), folds.forwards(baseline)];
  const [first, rest] = passesResult({ tokens, forwards, baseline: theirs, name: nameOf(baseline), differsAt: place });
  const compared =
    place < 0
      ? perPass
      : { ...perPass, value: countsOf(main), name: "", numbers: `${nameOf(baseline)}: ${countsOf(baseline)}` };
  const time =
    place < 0
      ? timeResult(laneSpeedup(main, baseline), {
          ...{ mine: folds.seconds(main), other: folds.seconds(baseline), unit: "s", device },
        })
      : [`${perToken(main)} ms per token on ${device}`, `${nameOf(baseline)}: ${perToken(baseline)} ms`];
  const third = others
    .filter((lane) => lane !== baseline)
    .map((lane) => {
      const isSame = differsAt(lane, baseline) < 0;
      const value = isSame ? passes(folds.forwards(lane)) : countsOf(lane);
      return { key: lane.name, value, name: lane.title, numbers: isSame ? "same text" : "different text" };
    });
  return {
    kind: place < 0 ? "same" : "different",
    ...{ first, rest: `${rest}.` },
    figures: [compared, ...third, { key: "time", value: time[0], name: "", numbers: time[1] }, ...loops],
  };
}

/** @param {Lane} lane */
const perToken = (lane) => figure((1000 * folds.seconds(lane)) / folds.tokens(lane));

/** @param {Lane} lane */
const countsOf = (lane) => `${counted(folds.tokens(lane), "token")} in ${passes(folds.forwards(lane))}`;

/**
 * Describes how far the lanes are, in one sentence if all have made the same number of passes.
 * @param {Lane[]} lanes
 */
function progressText(lanes) {
  const [first, ...others] = lanes.map((lane) => ({
    ...{ name: nameOf(lane), tokens: folds.tokens(lane), forwards: folds.forwards(lane) },
  }));
  if (others.some(({ forwards }) => forwards !== first.forwards))
    return [first, ...others]
      .map(({ name, tokens, forwards }) => `${capital(name)}: ${counted(tokens, "token")} in ${passes(forwards)}.`)
      .join(" ");
  if (!others.length) return `${counted(first.tokens, "token")} in ${passes(first.forwards)}.`;
  const rest = others.map(({ name, tokens }) => `, ${name} ${whole(tokens)}`).join("");
  return `After ${passes(first.forwards)}: ${first.name} has written ${counted(first.tokens, "token")}${rest}.`;
}

/**
 * Returns what a pass costs: the milliseconds of a pass, and how many passes of plain AR take as long.
 * @param {Lane} main @param {Lane | undefined} ar @returns {[value: string, numbers: string]}
 */
export function passCost(main, ar) {
  const [mine, theirs] = [main, ar].map((lane) => (lane ? 1000 * folds.secondsPerForward(lane) : NaN));
  const value = figure(mine);
  if (!Number.isFinite(theirs) || !ar?.isAr) return [value, ""];
  return [value, `as much as ${figure(rounded(mine) / rounded(theirs))} passes of AR (${figure(theirs)} ms)`];
}
