import assert from "node:assert/strict";
import { test } from "node:test";

import { contextText } from "../../assets/web/text/asked.js";
import { answerOf, historyOf, isForeign, readTurns, written } from "../../assets/web/views/conversation/turns.js";
import { LIMITS } from "../../assets/web/core/table.js";
import { END, PLAIN, arOf, laneOf } from "./runs.js";

const turn = (prompt, ...ids) => ({ prompt, run: prompt, value: "lines", answer: { ids } });

test("what is posted: the answers of the turns; none where nothing was written", () => {
  const turns = [turn("p", 1, 2), turn("q"), { ...turn("r"), answer: null }, turn("s", 4)];
  assert.deepEqual(historyOf(turns), [
    { prompt: "p", tokens: [1, 2] },
    { prompt: "s", tokens: [4] },
  ]);
});

test("no more is posted than the server takes: the oldest turns stay away", () => {
  const short = Array.from({ length: 120 }, (_, i) => turn(`p${i}`, 1));
  assert.deepEqual([historyOf(short).length, historyOf(short)[0].prompt], [100, "p20"]);
  for (const letter of ["語", '"', "\n"]) {
    const wide = ["a", "b", "c"].map((first) => turn(first + letter.repeat(45_000), 1));
    const posted = JSON.stringify(JSON.stringify(historyOf(wide)));
    assert.ok(historyOf(wide).length);
    assert.ok(new TextEncoder().encode(posted).length < LIMITS.body, letter);
  }
});

test("an answer is AR's, without the token that ends it and with a beginning that was given", () => {
  const header = { room: 90, checkpoint: "m", num_given: 1 };
  const found = answerOf([laneOf(PLAIN, { header }), arOf([1, 2, 3, 9, END], { header })]);
  assert.deepEqual([found.checkpoint, found.ids, found.text], ["m", [26, 1, 2, 3, 9], "zabci"]);
  assert.equal(found.perForward, 7 / 4);
  assert.deepEqual(answerOf([laneOf(PLAIN, { header })]).ids, [26, 1, 2, 3, 5, 6, 7]);
});

test("a result says which turn it is and what had no room", () => {
  const history = [{}, {}];
  assert.equal(contextText({ history: [] }), "");
  assert.equal(contextText({}), "");
  assert.ok(contextText({ history }).includes("3"));
  assert.ok(contextText({ history, num_left_out: 2 }).includes("5"));
});

test("a conversation comes back from its text, without its runs; other text is none", () => {
  const turns = [turn("one", 1), turn("<b>two</b>", 2, 3)];
  assert.deepEqual(
    readTurns(written(turns)),
    turns.map((kept) => ({ ...kept, value: "" })),
  );
  for (const text of ["", "null", "{", "{}", "[null]"]) assert.deepEqual(readTurns(text), [], text);
});

test("only a turn of the conversation, or the run that becomes one, is followed up", () => {
  const runOf = (id, prompt) => ({ id, lanes: [laneOf(PLAIN, { header: { prompt } })] });
  const [turns, expected] = [[turn("mine", 1)], { prompt: "next", before: "mine" }];
  assert.equal(isForeign(runOf("mine", "mine"), turns, null), false);
  assert.equal(isForeign(runOf("imported", "next"), turns, null), true);
  assert.equal(isForeign(runOf("2", "next"), turns, expected), false);
  assert.equal(isForeign(runOf("2", "other"), turns, expected), true);
  for (const none of [null, { id: "2", lanes: [] }]) assert.equal(isForeign(none, turns, null), false); // no other answer
});
