import assert from "node:assert/strict";
import { test } from "node:test";

import { Lane } from "../../assets/web/core/trace.js";
import { contextText } from "../../assets/web/text/asked.js";
import {
  answerOf,
  historyOf,
  readTurns,
  roomText,
  toldOf,
  written,
} from "../../assets/web/views/conversation/turns.js";
import { LIMITS } from "../../assets/web/core/table.js";
import { END, PLAIN, arOf, forward, laneOf } from "./runs.js";

const told = (ar, mars = ar) => ({ ids: { mars, ar }, texts: { mars: String(mars), ar: String(ar) } });

test("what is posted: AR's answers for both lanes, or each its own; none where nothing was written", () => {
  const turns = [
    { prompt: "p", told: told([1, 2], [3]) },
    { prompt: "q", told: told([]) },
    { prompt: "r", told: null },
    { prompt: "s", told: { ids: { mars: [4] } } },
  ];
  const s = { prompt: "s", tokens: [4] };
  assert.deepEqual(historyOf(turns, false), [{ prompt: "p", tokens: [1, 2] }, s]);
  assert.deepEqual(historyOf(turns, true), {
    mars: [{ prompt: "p", tokens: [3] }, s],
    ar: [{ prompt: "p", tokens: [1, 2] }, s],
  });
  assert.equal(answerOf(turns[0].told, false), "1,2");
  assert.equal(answerOf(turns[0].told, true), "3");
});

test("no more is posted than the server takes: the oldest turns stay away", () => {
  const short = Array.from({ length: 120 }, (_, i) => ({ prompt: `p${i}`, told: told([1]) }));
  assert.deepEqual([historyOf(short, false).length, historyOf(short, false)[0].prompt], [100, "p20"]);
  const long = ["a", "b", "c"].map((letter) => ({ prompt: letter.repeat(70_000), told: told([1]) }));
  assert.deepEqual(historyOf(long, false).map(({ prompt }) => prompt[0]), ["b", "c"]); // prettier-ignore
  assert.deepEqual(historyOf(long, true).ar.map(({ prompt }) => prompt[0]), ["c"]); // prettier-ignore
  for (const letter of ["語", '"', "\n"]) {
    const wide = ["a", "b", "c"].map((first) => ({ prompt: first + letter.repeat(45_000), told: told([1]) }));
    const posted = JSON.stringify(JSON.stringify(historyOf(wide, false)));
    assert.ok(historyOf(wide, false).length);
    assert.ok(new TextEncoder().encode(posted).length < LIMITS.body, letter);
  }
});

test("what is told of a run: ids without the one that ends it, texts, the room they take", () => {
  const header = { room: 90, checkpoint: "m", num_given: 1 };
  const mars = laneOf(PLAIN, { header });
  const found = toldOf({ lanes: [mars, arOf([1, 2, 3, 9, END], { header })] });
  assert.deepEqual(found.ids, { mars: [26, 1, 2, 3, 5, 6, 7], ar: [26, 1, 2, 3, 9] });
  assert.deepEqual(found.texts, { mars: "zabcefg", ar: "zabci" });
  assert.deepEqual([found.used, found.room, found.most, found.differs], [3 + 6, 90, 65, true]);
  assert.equal(found.perForward, 7 / 4);
  const unread = new Lane({ lane: "ar", title: "AR" });
  assert.deepEqual(Object.keys(toldOf({ lanes: [mars, unread] }).ids), ["mars"]);
});

test("a conversation that is nearly full says so before anything is left out", () => {
  const of = (used) => roomText({ used, room: 2000, most: 100 });
  assert.equal(of(1868), "132 tokens of 2,000 left.");
  const nearly = "and an answer may need 100. The next question drops the oldest turns.";
  assert.equal(of(1869), `Nearly full: 131 tokens of 2,000 left, ${nearly}`);
  assert.equal(of(2001), `Nearly full: all 2,000 tokens used, ${nearly}`);
  assert.deepEqual([roomText(null), roomText({ used: 5, room: 0, most: 3 })], ["", ""]);
});

test("a result says which turn it is and what had no room", () => {
  const history = [{}, {}];
  assert.equal(contextText({ history: [] }), "");
  assert.equal(contextText({}), "");
  assert.equal(contextText({ history }), "Turn 3 of a conversation.");
  const one = "Turn 4 of a conversation. The oldest turn did not fit and was left out.";
  assert.equal(contextText({ history, num_left_out: 1 }), one);
  const two = "Turn 5 of a conversation. The oldest 2 turns did not fit and were left out.";
  assert.equal(contextText({ history, num_left_out: 2 }), two);
});

test("a conversation comes back from its text, what goes on as far as it came", () => {
  const turns = [
    { prompt: "one", run: "a", told: told([1]), value: "lines", isOver: true },
    { prompt: "<b>two</b>", run: "b", told: told([2, 3]), value: "", isOver: false },
  ];
  const back = readTurns(written(turns));
  assert.deepEqual(back, [turns[0], { ...turns[1], isOver: true }]);
  assert.equal(written(back), written(turns));
});

test("of runs that are too much to store the latest stay, and what is no conversation is none", () => {
  const turns = [..."abc"].map((name) => ({ prompt: name, run: name, value: name.repeat(900_000) }));
  assert.deepEqual(
    readTurns(written(turns)).map((turn) => turn.value.length),
    [0, 900_000, 900_000],
  );
  for (const text of ["", "null", "{", "{}", "[null]", '{"first":0,"turns":[]}'])
    assert.deepEqual(readTurns(text), [], text);
});

test("of a branch and the first run beside it the branch alone is the answer", () => {
  const lanes = [laneOf([forward(0, [[1, 0.9]], 1, "limit")]), laneOf([forward(0, [[2, 0.9]], 1, "limit")], {}, "first")]; // prettier-ignore
  const { ids, differs } = toldOf({ lanes });
  assert.deepEqual([ids, differs], [{ mars: [1] }, false]);
});
