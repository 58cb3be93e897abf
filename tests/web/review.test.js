import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { placesOf, runsOf, stripOf, wordsOf } from "../../assets/web/views/review/align.js";
import { byBoldness, figureOf, plain } from "../../assets/web/views/review/charts.js";
import { Judgements } from "../../assets/web/views/review/kept.js";
import { current, keepable, lastOfReviewer, saidOf, sendable, tagOf, titleOf, toggled, unitOf, without } from "../../assets/web/views/review/rows.js"; // prettier-ignore
import { ALL, filterOf, filtered, linkOf } from "../../assets/web/views/review/table.js";

test("a method's title is plain, and an unknown name stays as it is", () => {
  const names = ["ar", "ar,lookup", "tau=0.95", "lossless,B=4", "ar,checkpoint=mars-tiny", "gpt-x", "<b>tau=0.5</b>"];
  assert.deepEqual(names.map(titleOf), [
    "plain AR",
    "AR + lookup",
    "τ 0.95",
    "lossless, B 4",
    "plain AR, mars-tiny",
    "gpt-x",
    "<b>tau=0.5</b>",
  ]);
});

describe("two texts by words", () => {
  const kinds = (one, other) => placesOf(wordsOf(one), wordsOf(other)).map(({ kind }) => kind);

  test("differences are told by kind", () => {
    assert.deepEqual(kinds("the cat sat", "the cat sat"), []);
    assert.deepEqual(kinds("the cat sat", "the dog sat"), ["different"]);
    assert.deepEqual(kinds("the black cat sat", "the cat sat"), ["missing"]);
    assert.deepEqual(kinds("the cat sat", "the black cat sat"), ["added"]);
    assert.deepEqual(kinds("the cat sat", "the the cat sat"), ["doubled"]);
    assert.deepEqual(kinds("one two", "one two one two"), ["doubled"]);
    assert.deepEqual(kinds("a b c d e", "a x c y e"), ["different", "different"]);
    assert.deepEqual(kinds("a  b", "a\nb"), []);
  });

  test("a text is cut where anything changes, and is whole when joined", () => {
    const answer = { pieces: ["The ", "ca", "t s", "at", " \u{1F600}."], groups: [1, 3, 1], otherwise: { 2: "n " } };
    const text = answer.pieces.join("");
    const words = wordsOf(text);
    const runs = runsOf(text, answer, words, [
      { from: 1, num: 1 },
      { from: 3, num: 0 },
      { from: 4, num: 0 },
    ]);
    assert.equal(runs.map((run) => run.text).join(""), text);
    assert.deepEqual(runs.filter(({ place }) => place === 0).map((run) => run.text), ["ca", "t"]); // prettier-ignore
    assert.deepEqual(runs.filter(({ otherwise }) => otherwise !== null).map((run) => run.text), ["t", " s"]); // prettier-ignore
    assert.deepEqual([...new Set(runs.map(({ group }) => group))], [0, 1, 2, -1]);
    assert.deepEqual(runs.filter(({ gap }) => gap >= 0).map(({ gap, text: own }) => [gap, own]), [[1, "\u{1F600}."], [2, ""]]); // prettier-ignore
    assert.equal(runsOf(text, null, words, []).length, 1);
  });

  test("a strip has a bar for each forward", () => {
    assert.deepEqual(stripOf({ groups: [1, 3], otherwise: { 2: "x" } }), [
      { size: 1, isOtherwise: false },
      { size: 3, isOtherwise: true },
    ]);
  });
});

describe("rows of judgements", () => {
  const row = (id, time, changes = {}) => ({
    ...{ id, time, set: "s", reviewer: "anna", item: "1", pair: ["ar", "tau=0"], left: "tau=0", right: "ar" },
    ...{
      preference: "left",
      ratings: [5, 2],
      tags: [["cut off"], []],
      note: "n",
      is_masked: false,
      is_revealed: false,
    },
    ...{ undoes: "", isSent: false, ...changes },
  });

  test("the latest that was not undone counts", () => {
    const rows = [row("b", "2", { preference: "right" }), row("a", "1"), row("u", "3", { undoes: "b" })];
    assert.deepEqual([...current(rows).values()].map(({ id }) => id), ["a"]); // prettier-ignore
    assert.equal(current([...rows, row("v", "4", { undoes: "a" })]).size, 0);
    assert.equal(lastOfReviewer(rows, "anna").id, "a");
    assert.equal(lastOfReviewer(rows, "ben"), null);
  });

  test("sides are turned where they stood the other way round, and unknown while they are sealed", () => {
    const told = saidOf(row("a", "1"), { left: "ar", right: "tau=0" });
    assert.deepEqual(told, { preference: "right", ratings: [2, 5], tags: [[], ["cut off"]], note: "n" });
    assert.equal(saidOf(row("a", "1"), { left: "tau=0", right: "ar" }).preference, "left");
    assert.equal(saidOf(row("a", "1", { left: undefined, sealed: "x" }), { left: "ar", right: "tau=0" }), null);
    assert.equal(saidOf(row("a", "1", { left: undefined, sealed: "x" }), null).preference, "left");
  });

  test("the server gets what it knows, and a row comes back with its pair", () => {
    const sent = sendable(row("a", "1"));
    assert.deepEqual(["set", "pair", "isSent"].filter((name) => name in sent), []); // prettier-ignore
    const rest = without(sent, "left", "right");
    assert.deepEqual(keepable(sent, "s", undefined).pair, ["ar", "tau=0"]);
    assert.deepEqual(keepable({ ...rest, sealed: "x" }, "s", ["ar", "b"]).pair, ["ar", "b"]);
    assert.equal(unitOf(row("a", "1")), unitOf(row("z", "9", { left: "ar", right: "tau=0" })));
  });

  test("a tag of the list is known by its beginning; others are kept as they are", () => {
    assert.equal(tagOf("rep"), "repetition");
    assert.equal(tagOf("broken"), "broken"); // two begin so
    assert.equal(tagOf(" odd tone "), "odd tone");
    assert.deepEqual(toggled(["a"], "a"), []);
  });
});

describe("the table", () => {
  const mark = (changes) => ({ is_same: false, word: 3, is_looped: false, is_right: null, tpf: 2, end: "eos", num_tokens: 9, ...changes }); // prettier-ignore
  const lines = [
    { number: 0, id: "a-1", category: "a", head: "Why?", mark: mark({ tpf: 1.5 }), row: null },
    { number: 1, id: "b-1", category: "b", head: "How?", mark: mark({ is_same: true, word: null, tpf: 3 }), row: { preference: "left", left: "ar", ratings: [4, 0], tags: [["x"], []] } }, // prettier-ignore
    { number: 2, id: "b-2", category: "b", head: "Why not?", mark: mark({ word: 1 }), row: null },
  ];
  const left = (changes) => filtered(lines.slice(), { ...ALL, ...changes }).map(({ number }) => number);

  test("filters and sorts", () => {
    assert.deepEqual(left({}), [0, 1, 2]);
    assert.deepEqual(left({ category: "b" }), [1, 2]);
    assert.deepEqual(left({ agreement: "same" }), [1]);
    assert.deepEqual(left({ judged: "no" }), [0, 2]);
    assert.deepEqual(left({ tag: "x" }), [1]);
    assert.deepEqual(left({ rating: "4" }), [1]);
    assert.deepEqual(left({ tpf: "1.9" }), [1, 2]);
    assert.deepEqual(left({ text: "why" }), [0, 2]);
    assert.deepEqual(left({ sort: "first difference" }), [2, 0, 1]);
    assert.deepEqual(left({ sort: "-first difference" }), [1, 0, 2]);
    assert.deepEqual(left({ sort: "tokens per pass" }), [1, 2, 0]);
  });

  test("a filter is in the link", () => {
    const filter = { ...ALL, category: "b", sort: "-rating" };
    assert.deepEqual(filterOf(new URLSearchParams(linkOf(filter))), filter);
    assert.deepEqual(linkOf(ALL), {});
  });
});

describe("charts", () => {
  const estimate = (value) => ({ value, low: value - 0.1, high: value + 0.1 });
  const about = {
    reference: 0,
    ways: [
      { name: "ar", settings: { method: "ar" } },
      { name: "<b>tau=0.5</b>", settings: { method: "mars", tau: 0.5 } },
      { name: "tau=0.9", settings: { method: "mars", tau: 0.9 } },
      { name: "lossless", settings: { method: "mars", tau: 0, lossless: true } },
    ],
    marks: [{ way: "<b>tau=0.5</b>", category: "", tpf: 2.5 }],
  };
  const preferred = { way: "<b>tau=0.5</b>", better: estimate(0.25), equal: estimate(0.5), worse: estimate(0.25) };
  const figures = { preferences: [preferred], said: [], by_category: {}, agreement: {}, caution: "" };
  const colours = { runs: ["#1", "#2"], ink: "#000", mars: "#00f", warm: "#f00", line: "#ccc" };

  test("names that people wrote are no markup", () => {
    assert.equal(plain("<b>&"), "&lt;b&gt;&amp;");
    const { data } = figureOf("preference", about, figures, "", colours);
    assert.deepEqual(data.map(({ x, y }) => [x[0], y[0]]), [["&lt;b&gt;tau=0.5&lt;/b&gt;", 0.25], ["&lt;b&gt;tau=0.5&lt;/b&gt;", 0.5], ["&lt;b&gt;tau=0.5&lt;/b&gt;", 0.25]]); // prettier-ignore
    assert.ok(Math.abs(data[0].error_y.array[0] - 0.1) < 1e-9);
    const pace = figureOf("pace", about, figures, "", colours).data[0];
    assert.deepEqual([pace.x, pace.y, pace.name], [[2.5], [0.25], "the method itself"]);
  });

  test("nothing is drawn of what nobody said, and ways stand by boldness", () => {
    assert.equal(figureOf("rating", about, figures, "", colours), null);
    assert.equal(figureOf("tags", about, figures, "", colours), null);
    assert.deepEqual(byBoldness(about.ways), ["ar", "lossless", "tau=0.9", "<b>tau=0.5</b>"]);
  });
});

describe("judgements on their way to the server", () => {
  // What the server and the store were asked for, each answered when a test says so.
  function slow() {
    /** @type {[string, any, (answer?: any) => void][]} */
    const asked = [];
    /** @type {(what: string) => (...given: any[]) => Promise<any>} */
    const ask =
      (what) =>
      (...given) =>
        new Promise((answer) => asked.push([what, given, answer]));
    const server = { key: "k", json: ask("server") };
    const kept = new Judgements(/** @type {any} */ (server), () => {});
    for (const { channel } of [kept.store, kept.drafts, kept.sets]) /** @type {BroadcastChannel} */ (channel).close();
    Object.assign(kept, { set: "s", address: "s", store: { put: ask("store") } });
    const turn = () => new Promise((done) => setTimeout(done));
    /** @type {(what: string, answer?: any) => Promise<any>} */
    const answer = async (what, told) => {
      const at = asked.findIndex(([name]) => name === what);
      const [[, given, done]] = asked.splice(at, 1);
      done(told);
      await turn();
      return given;
    };
    return { kept, asked, answer };
  }
  const SAID = /** @type {any} */ ({ item: "p", pair: ["a", "b"], reviewer: "anna", preference: "left", sealed: "x" });

  test("sides that are told while a row is put away are not forgotten", async () => {
    const { kept, answer } = slow();
    const adding = kept.add(SAID);
    await answer("store");
    const row = await adding;
    const revealing = kept.reveal([row]);
    await answer("server", { row: { ...SAID, id: row.id, time: row.time } }); // it is acknowledged
    await answer("server", { sides: [{ left: "a", right: "b" }] }); // while it is put away, its sides are told
    await answer("store");
    await answer("store");
    await revealing;
    const { left, right, isSent, sealed } = /** @type {any} */ (kept.rows.get(row.id));
    assert.deepEqual([left, right, isSent, sealed], ["a", "b", true, undefined]);
  });

  test("a row that comes while others are sent is sent after them", async () => {
    const { kept, asked, answer } = slow();
    const first = kept.add(SAID);
    await answer("store");
    const second = kept.add({ ...SAID, item: "q" });
    await answer("store");
    const rows = [await first, await second];
    for (const { id, time } of rows) {
      const [, { row }] = await answer("server", { row: { ...SAID, id, time } });
      assert.equal(row.id, id);
      await answer("store");
    }
    assert.deepEqual([kept.unsent, asked, kept.isSending], [[], [], false]);
  });
});
