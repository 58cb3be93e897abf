import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { REVIEW } from "../../assets/web/core/table.js";
import { MARKS, NOT_A_SET, SetReader, answerFrom, answerOfLines, columnsOf, firstUnlike, laneOf as answerLane, pinLane, readSet, selected, setText } from "../../assets/web/views/review/sets.js"; // prettier-ignore
import { contentOf, mergedVotes, tally, votesCsv, votesJsonl, wilson } from "../../assets/web/views/review/votes.js";
import { arOf, laneOf, linesOf, PLAIN } from "./runs.js";

const HEADER = {
  ...{ type: "set", version: 1, id: "s", name: "S", made: {} },
  methods: ["a", "b", "c"].map((name) => ({ name, checkpoint: "x", settings: null })),
};
const answer = (text, more = {}) => ({ text, passes: [], unlike_ar: [], is_same: null, is_looped: null, is_right: null, fault: "", trace: [], ...more }); // prettier-ignore
const item = (id, texts, more = {}) => ({ type: "item", id, prompt: `Prompt ${id}`, system: "", category: "", reference: "", turns: [], answers: texts.map((text) => answer(text)), ...more }); // prettier-ignore
const VOTE = { type: "vote", item: "1", vote: "a", note: "=1+1", time: "2026-01-01", is_blind: true };
const LINES = [HEADER, item("1", ["x", "x", "y"]), item("2", ["z", "z", "z"]), VOTE];
const textOf = (lines) => lines.map((line) => `${typeof line === "string" ? line : JSON.stringify(line)}\n`).join("");
const read = (content) => readSet(new Blob([content]).stream());

test("a set is read as it was written, with its votes", async () => {
  const { set, votes } = await read(textOf(LINES));
  assert.deepEqual([set.id, set.items.length, votes["1"].note], ["s", 2, "=1+1"]);
  assert.deepEqual(await read(setText(set, votes)), { set, votes });
});

describe("a damaged set", () => {
  const DEEP = `${"[".repeat(10_000)}${"]".repeat(10_000)}`;
  const raw = ["<html>", "\u0000", "1", "null", "[]", '"a"', "{}", "{", "NaN", DEEP, `{"a":${DEEP}`, "x".repeat(20_000_000), JSON.stringify(LINES[1])]; // prettier-ignore
  for (const [kind, line] of raw.entries())
    test(`line ${kind}`, async () => {
      for (let at = 0; at < 4; at += 1) {
        if (kind === raw.length - 1 && at === 1) continue;
        const lines = LINES.toSpliced(at, 0, line);
        await assert.rejects(read(textOf(lines)), /^SetError: [^\n]{1,300}\.$|^Error: [^\n]{1,300}\.$/);
      }
    });

  test("a file that is not UTF-8 text", async () => {
    for (const bytes of [
      [0xff, 0xfe, 0x61, 0],
      [0xe4, 0x0a],
      [0x50, 0x4b, 3, 4, 0xff],
    ])
      await assert.rejects(read(new Uint8Array(bytes)), /\.$/);
    for (const text of ["", "\n", "prompt,id\nHi,1\n"]) await assert.rejects(read(text), { message: NOT_A_SET });
  });

  const values = [null, true, -1, 1.5, "", "x", [], [1], [[1]], {}, { a: 1 }, "x".repeat(REVIEW.text + 1)];
  const paths = [
    ...Object.keys(HEADER).map((key) => [0, key]),
    ...["name", "checkpoint", "settings"].map((key) => [0, "methods", 1, key]),
    ...Object.keys(LINES[1]).map((key) => [1, key]),
    ...Object.keys(LINES[1].answers[0]).map((key) => [1, "answers", 2, key]),
    ...Object.keys(VOTE).map((key) => [3, key]),
  ];
  for (const path of paths)
    test(`a wrong value at ${path.join(".")} is a sentence or harmless`, () => {
      for (const value of values) {
        const lines = structuredClone(LINES);
        const place = path.slice(0, -1).reduce((inner, key) => inner[key], lines);
        place[path.at(-1)] = value;
        const reader = new SetReader();
        try {
          for (const line of lines) reader.push(JSON.stringify(line));
        } catch (error) {
          if (error.message !== NOT_A_SET)
            assert.match(error.message, /^Line \d is not part of a set: [^\n]{1,200}\.$/);
          continue;
        }
        for (const each of reader.items)
          for (const one of each.answers) if (one) assert.doesNotThrow(() => answerLane(one, "m", "M"));
        assert.equal(typeof tally(reader.header.methods, reader.votes, reader.items), "string");
      }
    });
});

test("filters and the search select prompts", async () => {
  const { set, votes } = await read(textOf(LINES));
  const ids = (filter, search = "") => selected(set.items, votes, filter, search).map(({ id }) => id);
  assert.deepEqual([ids("differs"), ids("vote"), ids("note"), ids("unvoted"), ids("loop"), ids("")], [["1"], ["1"], ["1"], ["2"], [], ["1", "2"]]); // prettier-ignore
  assert.deepEqual([ids("", "prompt 2"), ids("", "Z"), ids("", "1+1"), ids("", "nothing")], [["2"], ["2"], ["1"], []]);
  assert.ok(Object.keys(MARKS).length >= 6);
});

test("hidden methods have an order that depends on the prompt and stays", async () => {
  const items = Array.from({ length: 60 }, (_, i) => item(String(i), ["x", "y", "z"]));
  const { set } = await read(textOf([HEADER, ...items]));
  const orders = set.items.map((each) => columnsOf(set, each, new Set(), true).join(""));
  assert.equal(new Set(orders).size, 6);
  assert.deepEqual(orders, set.items.map((each) => columnsOf(set, each, new Set(), true).join(""))); // prettier-ignore
  assert.deepEqual(columnsOf(set, set.items[0], new Set([2, 0]), false), [0, 2]);
});

test("votes are counted with Wilson intervals and merged by time", () => {
  assert.deepEqual([wilson(0, 10), wilson(5, 10), wilson(10, 10)], [[0, 28], [24, 76], [72, 100]]); // prettier-ignore
  const votes = { 1: { vote: "a", note: "", time: "2" }, 2: { vote: "equal", note: "", time: "2" } };
  assert.match(tally(HEADER.methods, votes, []), /^2 votes · 1 equal · 0 both bad\na: 1 \(9 to 91 %\)\n/);
  assert.equal(tally(HEADER.methods, {}, []), "");
  const same = [item("1", ["x", "x", "x"]), item("2", ["x", "x", "y"])];
  assert.match(
    tally(HEADER.methods, { 1: votes[1], 2: votes[1] }, same),
    /^2 votes · 1 equal · .+\na: 1 .+\nb: 1 .+\nc: 0 /,
  );
  assert.deepEqual([contentOf(3, votes), contentOf(0, { 1: { vote: "", note: "n" } })], ["3 prompts and 2 votes", "0 votes and 1 note"]); // prettier-ignore
  const merged = mergedVotes(votes, { 1: { vote: "b", time: "1" }, 2: { vote: "bad", time: "3" }, 3: { vote: "c" } });
  assert.deepEqual(["1", "2", "3"].map((id) => merged[id].vote), ["a", "bad", "c"]); // prettier-ignore
});

test("exports have the methods and settings, and no formulas", async () => {
  const { set, votes } = await read(textOf(LINES));
  const csv = votesCsv(set, votes);
  assert.ok(csv.startsWith("\ufeffid,"));
  assert.ok(csv.includes(",'=1+1,"));
  const again = await read(votesJsonl(set, votes));
  assert.deepEqual([again.set.header, again.votes], [set.header, votes]);
});

test("a run becomes an answer with its checks", () => {
  const made = answerFrom(laneOf(PLAIN));
  assert.deepEqual([made.text, made.passes], ["abcefg", [2, 1, 2, 2]]);
  assert.equal(answerLane(made, "m", "M").tokens.length, 7);
  assert.equal(answerOfLines(linesOf(PLAIN)).fault, "");
  assert.notEqual(answerOfLines(linesOf(PLAIN, { end: "deadline" })).fault, "");
});

test("pinned lanes share the item of their prompt and the method of their settings", () => {
  const set = { id: "p", header: { id: "p", name: "P", methods: [], made: {} }, items: [] };
  const header = { prompt: "Hi", checkpoint: "x" };
  for (const lane of [
    laneOf(PLAIN, { header }),
    arOf([1, 2], { header }),
    laneOf(PLAIN, { header: { ...header, prompt: "Ho" } }),
  ])
    // prettier-ignore
    assert.ok(pinLane(set, lane));
  assert.deepEqual([set.items.length, set.header.methods.length], [2, 2]);
  assert.deepEqual(set.items.map(({ answers }) => answers.map(Boolean)), [[true, true], [true, false]]); // prettier-ignore
  assert.equal(set.items[0].answers[0].is_same, false);
});

test("answers with the same text have the same mark, whichever of them is AR's", () => {
  const answers = ["one two", "one two", "one six"].map((text) => ({ text, fault: "" }));
  assert.deepEqual(
    answers.map(({ text }) => firstUnlike(text, answers)),
    [4, 4, 4],
  );
  assert.equal(firstUnlike("one two", [...answers.slice(0, 2), { text: "", fault: "failed" }]), 7);
});
