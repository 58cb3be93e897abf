import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { divergence, draftIds, folds, mainLane, passesSaved } from "../../assets/web/core/folds.js";
import { LogReader } from "../../assets/web/core/line_view.js";
import { savedText } from "../../assets/web/core/sources.js";
import { readValue, statusLine, valueOf } from "../../assets/web/core/wire.js";
import { arOf, forward, laneOf, LOSSLESS, LOSSLESS_SETTINGS, PLAIN } from "./runs.js";

describe("lanes", () => {
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

  test("a character in two tokens stands with the one that completes it", () => {
    const vocabulary = { 1: "\u00c3", 2: "\u00a9" }; // the bytes of é
    const rows = [forward(0, [[1, 0.9], [2, 0.9]], 2, "limit")]; // prettier-ignore
    const lane = laneOf(rows, { header: { vocabulary } });
    assert.deepEqual(lane.tokens.map((token) => token.text), ["", "é"]); // prettier-ignore
    assert.equal(lane.tokenName(1), "⟨C3⟩");
    assert.equal(lane.tokenName(77), "#77");
  });

  for (const [name, pieces] of Object.entries({
    flag: ["🇩", "🇪", "🇫", "🇷"],
    "Hangul jamo": ["\u1112", "\u1161", "\u11ab\u1100", "\u1173", "\u11af"],
    "line break": ["a\r", "\n\r", "\n", "b"],
    family: ["👩", "\u200d", "👩🏽", "\u200d👧 x"],
  })) {
    test(`a grapheme cluster is one token's text at every pass: ${name}`, () => {
      const latin1 = (piece) => String.fromCharCode(...new TextEncoder().encode(piece));
      const vocabulary = Object.fromEntries(pieces.map((piece, i) => [i + 1, latin1(piece)]));
      const rows = pieces.map((_, i) => forward(i, [[i + 1, 0.9]], 1, i + 1 < pieces.length ? "block" : "limit"));
      const lane = laneOf(rows, { header: { vocabulary } });
      const segmenter = new Intl.Segmenter("und", { granularity: "grapheme" });
      for (let num = 1; num <= pieces.length; num += 1) {
        const cut = lane.at(num);
        assert.equal(text(cut), pieces.slice(0, num).join(""));
        const clusters = (string) => [...segmenter.segment(string)].map(({ segment }) => segment);
        assert.deepEqual(
          cut.tokens.flatMap((token) => clusters(token.text)),
          clusters(text(cut)),
        );
      }
    });
  }

  test("a slider that moves over forwards in a row is one move", () => {
    const rows = PLAIN.map((row, i) => (i === 1 || i === 2 ? { ...row, settings: { tau: 0.9 - i / 10 } } : row));
    const [move, ...others] = laneOf(rows).moves;
    assert.equal(others.length, 0);
    assert.deepEqual([move.step, move.until, move.token], [1, 2, 2]);
    assert.deepEqual([move.before.tau, move.settings.tau], [0.9, 0.7]);
  });

  test("any setting that changed is a move, as τ and B are", () => {
    const others = { metric: "entropy", lossless: true, mask_layout: "every", lookup: true };
    for (const [name, other] of Object.entries(others)) {
      const rows = PLAIN.map((row, i) => (i === 1 ? { ...row, settings: { [name]: other } } : row));
      assert.deepEqual(laneOf(rows).moves.map((move) => [move.step, move.settings[name]]), [[1, other]]); // prettier-ignore
    }
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
    assert.equal(mainLane({ lanes: [arOf([1]), mars] }), mars);
  });
});

describe("who proposed each token", () => {
  const lane = laneOf(
    [["a", "a"], ["mma", "block"], ["lll", "eos"]].map(([sources, stop], i) =>
      forward(3 * i, [...sources].map((_, n) => [n + 1, 0.9]), sources.length, stop, { sources }),
    ),
  ); // prettier-ignore

  test("is what the server said; a line without it has AR's own", () => {
    assert.deepEqual(lane.steps.map((step) => step.sources), [["ar"], ["masks", "masks", "ar"], ["look-up", "look-up", "look-up"]]); // prettier-ignore
    assert.deepEqual(laneOf([forward(0, [[1, 0.9], [2, 0.9]], 2, "block")]).steps[0].sources, ["ar", "ar"]); // prettier-ignore
  });

  test("each forward gives one token that no drafter saved", () => {
    assert.deepEqual(passesSaved(lane), { masks: 2, "look-up": 2 });
    assert.equal(savedText(lane), "4 passes saved: 2 by masks, 2 by prompt lookup");
    assert.equal(savedText(laneOf(LOSSLESS.slice(0, 2))), "1 pass saved by masks");
    assert.equal(savedText(arOf([1, 2])), "0 passes saved");
    assert.deepEqual(passesSaved(laneOf([forward(0, [[1, 0.9]], 0, "threshold", { taken: [0] })])), { masks: -1 });
  });
});

describe("the log reader", () => {
  // What a sink was told, in order.
  function heard() {
    const told = [];
    const sink = {
      start: (head) => told.push(`start ${head.run}`),
      line: (tag, data, text) => told.push(`${tag} ${text}`),
      clear: () => told.push("clear"),
    };
    const reader = new LogReader(sink);
    return { told, reader, read: (value) => (reader.read(value), reader.work(1000)) };
  }

  const value = (head, ...lines) => [JSON.stringify(head), ...lines, ""].join("\n");

  test("a growing value is read once", () => {
    const { told, read } = heard();
    read(value({ run: "a" }, "mars\t1"));
    read(value({ run: "a" }, "mars\t1", "mars\t2"));
    assert.deepEqual(told, ["start a", "mars 1", "mars 2"]);
  });

  test("a line counts once its newline is there", () => {
    const { told, read } = heard();
    read('{"run":"a"}\nmars\t1\nmars\t2');
    assert.deepEqual(told, ["start a", "mars 1"]);
  });

  test("windows overlap, and what was read is not read again", () => {
    const { told, read } = heard();
    read(value({ run: "a" }, "mars\t1", "mars\t2"));
    read(value({ run: "a", from: 1 }, "mars\t2", "mars\t3"));
    assert.deepEqual(told, ["start a", "mars 1", "mars 2", "mars 3"]);
  });

  test("a window that begins too late is not read: the reader is behind until the whole comes", () => {
    const { told, reader, read } = heard();
    read(value({ run: "a" }, "mars\t1"));
    for (const from of [3, 2]) {
      read(value({ run: "a", from }, "mars\t4"));
      assert.equal(reader.isBehind, true, `lines before ${from} are missing`);
    }
    read(value({ run: "a" }, "mars\t1", "mars\t2", "mars\t3", "mars\t4"));
    assert.equal(reader.isBehind, false);
    assert.deepEqual(told, ["start a", "mars 1", "mars 2", "mars 3", "mars 4"]);
  });

  test("another run begins anew, and nothing at all clears", () => {
    const { told, read } = heard();
    read(value({ run: "a" }, "mars\t1"));
    read(value({ run: "b" }, "mars\t2"));
    read("");
    assert.deepEqual(told, ["start a", "mars 1", "start b", "mars 2", "clear"]);
  });

  test("a broken line is an error", () => {
    const { reader } = heard();
    reader.read(value({ run: "a" }, "mars\t{"));
    assert.throws(() => reader.work(1000), SyntaxError);
  });
});

describe("lines and values", () => {
  const HEAD = { run: "r", lanes: [{ lane: "mars", title: "MARS" }] };

  test("a value is its head, its lanes, what was found of their answers, and more", () => {
    const lanes = [
      { name: "mars", lines: ["1", "2"], verdict: true },
      { name: "ar", lines: ["3"], verdict: null },
    ];
    const value = valueOf(HEAD, lanes, [statusLine({ text: "t", kind: "note" })]);
    assert.equal(
      value,
      `${JSON.stringify(HEAD)}\nmars\t1\nmars\t2\nar\t3\nverdict\t{"lane":"mars","right":true}\nstatus\t{"text":"t","kind":"note"}\n`,
    );
    const read = readValue(value);
    assert.deepEqual([read.head, read.lines.length, read.lines[1]], [HEAD, 5, ["mars", "2"]]);
  });
});
