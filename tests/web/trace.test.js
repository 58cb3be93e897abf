import assert from "node:assert/strict";
import { test } from "node:test";

import { compared, divergence, draftIds, folds, mainLane } from "../../assets/web/core/folds.js";
import { Lane } from "../../assets/web/core/trace.js";
import { END, LOSSLESS, LOSSLESS_SETTINGS, PLAIN, arOf, forward, laneOf, linesOf } from "./runs.js";

const text = (lane) => lane.tokens.map((token) => token.text).join("");

test("forwards become tokens, the end mark without text", () => {
  const lane = laneOf(PLAIN);
  assert.equal(text(lane), "abcefg");
  assert.deepEqual(lane.steps.map((step) => [step.first, step.count]), [[0, 2], [2, 1], [3, 2], [5, 2]]); // prettier-ignore
  assert.equal(lane.tokens.at(-1).isEnd, true);
  assert.deepEqual(lane.end, { reason: "eos", message: "" });
});

test("clocks are the seconds of the forwards; the prompt's count for the first token alone", () => {
  const lane = laneOf(PLAIN, { seconds: 0.25 });
  assert.deepEqual(lane.steps.map((step) => step.clock), [0.25, 0.5, 0.75, 1]); // prettier-ignore
  assert.equal(folds.toFirst(lane), 0.75);
  assert.equal(folds.perForward(lane), 7 / 4);
  assert.equal(folds.perSecond(lane), 7);
  assert.equal(folds.secondsPerForward(lane), 0.25);
});

test("the lines are kept as they came", () => {
  const lines = linesOf(PLAIN);
  assert.deepEqual(Lane.of(lines, { lane: "mars", title: "MARS" }).lines, lines);
});

test("an unknown line is refused", () => {
  const lane = new Lane({ lane: "mars", title: "MARS" });
  assert.throws(() => lane.push({ type: "novel" }, "{}"), /unknown type novel/);
});

test("a character in two tokens stands with the one that completes it", () => {
  const vocabulary = { 1: "\u00c3", 2: "\u00a9" }; // the bytes of é
  const rows = [forward(0, [[1, 0.9], [2, 0.9]], 2, "limit")]; // prettier-ignore
  const lane = laneOf(rows, { header: { vocabulary } });
  assert.deepEqual(lane.tokens.map((token) => token.text), ["", "é"]); // prettier-ignore
  assert.equal(lane.tokenName(1), "⟨C3⟩");
  assert.equal(lane.tokenName(77), "#77");
});

test("a slider that moves over forwards in a row is one move", () => {
  const rows = PLAIN.map((row, i) => (i === 1 || i === 2 ? { ...row, settings: { tau: 0.9 - i / 10 } } : row));
  const [move, ...others] = laneOf(rows).moves;
  assert.equal(others.length, 0);
  assert.deepEqual([move.step, move.until, move.token], [1, 2, 2]);
  assert.deepEqual([move.before.tau, move.settings.tau], [0.9, 0.7]);
});

test("a cut is the lane as it was", () => {
  const lane = laneOf(PLAIN);
  const cut = lane.at(2);
  assert.equal(text(cut), "abc");
  assert.equal(cut.end, null);
  assert.equal(cut.seconds, 0.2);
  assert.equal(lane.at(4), lane);
  assert.equal(lane.at(2), cut);
});

test("checks say what AR would have chosen at the last places", () => {
  const rows = [PLAIN[0], { ...PLAIN[1], checks: [[2, 0.9]] }];
  const lane = laneOf(rows, { end: "" });
  assert.deepEqual(lane.tokens[1].check, { id: 2, p: 0.9 });
  assert.equal(lane.at(1).tokens[1].check, undefined); // known a forward later
});

test("the latest forward's unused proposals are drafts, then refused ones", () => {
  const lane = laneOf(LOSSLESS.slice(0, 1), { ...LOSSLESS_SETTINGS, end: "" });
  assert.deepEqual(lane.ghosts(), { drafts: "b", refused: "c" });
  assert.deepEqual(draftIds(lane.steps[0]), [2]);
  assert.equal(laneOf(PLAIN).ghosts(), null);
});

test("where two texts first differ", () => {
  const mars = laneOf(PLAIN);
  assert.equal(divergence(mars, arOf([1, 2, 3, 4]), 0), 3);
  assert.equal(divergence(mars, arOf([1, 2, 3]), 0), -1);
  const same = arOf([1, 2, 3, 5, 6, 7, END]);
  assert.deepEqual(compared([mars, same], -1), { place: -1, isShown: false, isSame: true });
  assert.deepEqual(compared([mars, arOf([1, 2, 3, 4])], 3), { place: 3, isShown: true, isSame: false });
});

test("the main lane is the first that is not plain AR", () => {
  const [mars, ar] = [laneOf(PLAIN), arOf([1])];
  assert.equal(mainLane({ lanes: [ar, mars] }), mars);
  assert.equal(mainLane({ lanes: [ar] }), ar);
});
