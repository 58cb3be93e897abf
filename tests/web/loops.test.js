// What a loop that the server found does to figures and words.

import assert from "node:assert/strict";
import { test } from "node:test";
import { folds, loopRemark, passesSaved } from "../../assets/web/core/folds.js";
import { loopsAt, upToLoop } from "../../assets/web/core/loops.js";
import { savedText } from "../../assets/web/core/sources.js";
import { laneSpeedup } from "../../assets/web/core/speedup.js";
import { Lane } from "../../assets/web/core/trace.js";

const repeated = (phrase, times) => Array.from({ length: times }, () => phrase).flat();

// A lane that writes these groups, a forward of a second for each. loop: as in the line of its evidence.
function laneOf(groups, name = "mars", reason = "repeats", loop = null) {
  const vocabulary = Object.fromEntries(groups.flat().map((id) => [id, String.fromCharCode(97 + id)]));
  const settings = { method: name, tau: 0.5, block_size: 8 };
  const header = { type: "header", version: 1, checkpoint: "c", prompt: "", prompt_ids: [1], settings, vocabulary };
  let start = 0;
  const steps = groups.map((accepted, i) => {
    const stop = i === groups.length - 1 ? reason : "block";
    const sources = name === "ar" ? undefined : `a${"m".repeat(accepted.length - 1)}`;
    const fields = {
      row: 0,
      start,
      cursor: 0,
      num_pending: 1,
      num_fed: 8,
      proposals: [],
      accepted,
      num_drafted: 0,
      stop,
    };
    const isEvident = loop && start < loop[1] && loop[1] <= start + accepted.length;
    start += accepted.length;
    return { type: "step", seconds: 1, rows: [{ ...fields, sources, ...(isEvident ? { loop } : {}), spread: 0 }] };
  });
  const lines = [header, ...steps, { type: "end", reason, message: "" }].map((line) => JSON.stringify(line));
  return Lane.of(lines, { lane: name, title: name });
}

const LOOP = [5, 53];
const looping = () => {
  const groups = [[1, 2], [3], [4, 5, 4, 5, 4, 5, 4, 5], ...Array.from({ length: 8 }, () => repeated([4, 5], 4))];
  return laneOf(groups, "mars", "repeats", LOOP);
};

test("tokens per forward are told without a loop, and that is said", () => {
  const lane = looping();
  assert.equal(lane.tokens.length, 75);
  assert.equal(loopsAt(lane), 5);
  assert.equal(folds.perForward(lane), 5 / 3);
  assert.match(loopRemark(lane), /until the text starts to loop at token 5/);
  const cut = lane.at(3);
  assert.equal(loopsAt(cut), -1);
  assert.equal(folds.perForward(cut), 11 / 3);
  assert.equal(loopRemark(cut), "");
});

// Plain AR's run with the same text as another.
const arBeside = (lane) =>
  laneOf(
    lane.ids.map((id) => [id]),
    "ar",
    "repeats",
    LOOP,
  );

test("every figure of a run counts up to the loop", () => {
  const lane = looping();
  const ar = arBeside(lane);
  for (const [given, passes] of [
    [lane, 3],
    [ar, 5],
  ]) {
    // prettier-ignore
    assert.deepEqual([folds.tokens(given), folds.forwards(given), folds.seconds(given)], [5, passes, passes]);
    assert.deepEqual([folds.perSecond(given), folds.secondsPerForward(given)], [5 / passes, 1]);
    assert.equal(given.tokens.length, 75);
    const part = upToLoop(given);
    assert.deepEqual([part.ids, loopsAt(part), upToLoop(part)], [[1, 2, 3, 4, 5], -1, part]);
  }
  assert.deepEqual(passesSaved(lane), { masks: 2 });
  assert.equal(savedText(lane), "2 passes saved by masks");
  assert.equal(laneSpeedup(lane, ar).kind, "short");
  assert.equal(laneSpeedup(lane, ar).limit, 5 / 3);
  const cut = lane.at(lane.steps.length - 1);
  assert.deepEqual([loopsAt(cut), folds.tokens(cut), folds.forwards(cut)], [5, 5, 3]);
});
