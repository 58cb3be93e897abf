import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { aloneText, incompleteTail, isRightToLeft, withoutBidi, visible } from "../../assets/web/core/bytes.js";
import * as words from "../../assets/web/core/words.js";
import { isOtherRun } from "../../assets/web/text/asked.js";
import { Fences } from "../../assets/web/text/fences.js";
import { beginsWithSpace, countPlace, scrolledBack } from "../../assets/web/text/text.js";
import { PLAIN, laneOf } from "./runs.js";

describe("bytes", () => {
  const bytes = (...values) => Uint8Array.from(values);

  test("what is left of a character waits: é is c3 a9, € is e2 82 ac, 😀 is f0 9f 98 80", () => {
    assert.deepEqual(incompleteTail(bytes(0x41, 0xc3)), bytes(0xc3));
    assert.deepEqual(incompleteTail(bytes(0xe2, 0x82)), bytes(0xe2, 0x82));
    assert.deepEqual(incompleteTail(bytes(0xf0, 0x9f, 0x98)), bytes(0xf0, 0x9f, 0x98));
    assert.deepEqual(incompleteTail(bytes(0xc3, 0xa9)), bytes());
    assert.deepEqual(incompleteTail(bytes()), bytes());
  });

  test("bytes that can begin nothing do not wait", () => {
    assert.deepEqual(incompleteTail(bytes(0x80)), bytes());
    assert.deepEqual(incompleteTail(bytes(0xc3, 0x41)), bytes());
  });

  test("a piece of a character is named by its bytes", () => {
    assert.equal(aloneText(bytes(0xc3, 0xa9)), "é");
    assert.equal(aloneText(bytes(0xc3)), "⟨C3⟩");
  });

  test("what has no ink is made visible, and nothing turns the reading direction around", () => {
    assert.equal(visible(" a\n\u200b"), "␣a⏎‹200B›");
    assert.equal(withoutBidi("a\u202eb"), "a\ufffdb");
  });
});

describe("direction", () => {
  test("the first letter decides; digits, marks and spaces have no direction", () => {
    const texts = ["שלום abc", " - مرحبا", "2024, ثم", "abc שלום", "Ω א", "12 + 3", ""];
    assert.deepEqual(texts.map(isRightToLeft), [true, true, true, false, false, false, false]);
  });
});

describe("groups", () => {
  test("a gap takes the room of a space, not of the letter behind a line end", () => {
    const spaced = [" a", "\ta", "a", "\n", "\nb", "\n    b", ""].map((text) => beginsWithSpace({ text }));
    assert.deepEqual(spaced, [true, true, false, false, false, false, false]);
  });
});

describe("numbers in words", () => {
  test("a probability is never rounded to certainty", () => {
    assert.equal(words.probability(0.99951), "> 0.999");
    assert.equal(words.probability(0.0001), "< 0.001");
    assert.equal(words.probability(1), "1.000");
    assert.equal(words.probability(0.5), "0.500");
  });

  test("thresholds, milliseconds, sizes", () => {
    assert.deepEqual([0.95, 1].map((number) => words.short(number)), ["0.95", "1"]); // prettier-ignore
    assert.equal(words.milliseconds(0.0123), "12.3");
    assert.deepEqual([512, 1024, 1_500_000].map(words.memory), ["512 bytes", "1.02 kB", "1.50 MB"]);
  });
});

test("a count stands beneath the last inked token of its group, unless the one before it is too near", () => {
  const tokens = ["17", " *", "1", ".", "", " and"].map((text) => ({ text }));
  assert.equal(countPlace(tokens, 0, 2), 1);
  assert.equal(countPlace(tokens, 3, 2), 3); // the end has no ink
  assert.equal(countPlace(tokens, 3, 2, 2), -1); // one dot has no room for another digit
  assert.equal(countPlace(tokens, 5, 1, 2), 5);
  assert.equal(countPlace([{ text: "" }], 0, 1), -1);
});

test("a scrolled text begins with a whole line, and shows nothing of the line above", () => {
  const lines = [20, 40, 60, 80].map((top) => ({ top, bottom: top + 17 }));
  const tops = (edge) => lines.map(({ top }) => top + scrolledBack(lines, edge)).find((top) => top + 17 > edge) - edge;
  assert.deepEqual([55, 57, 59, 60, 70, 25].map(tops), [3, 3, 3, 3, 3, 6]);
  assert.equal(scrolledBack(lines, 10), 0);
  assert.equal(scrolledBack([], 10), 0);
});

test("fenced code is followed through tokens, wherever they are cut", () => {
  const codeOf = (tokens) => {
    const fences = new Fences();
    return tokens.map((text) => (fences.append(text) ? "c" : "p")).join("");
  };
  assert.equal(codeOf(["Here:\n", "```", "python", "\n", "x = 1", "\n", "```", "\n", "It is one."]), "pcccccc" + "pp");
  assert.equal(codeOf(["``", "`\n", "a\n", "``", "`", "\nb"]), "pcccc" + "p");
  assert.equal(codeOf(["a ``` b ", "`c`", "\n    ```", "\nd"]), "pppp"); // not at the start of a line
  assert.equal(codeOf(["```js\nx\n```\n", "prose"]), "cp");
});

test("other settings, lanes or another model are noticed, and a setting that has no effect is not", () => {
  const settings = { method: "mars", tau: 0.3, block_size: 4, lossless: true, max_new_tokens: 64 };
  const lanes = [laneOf(PLAIN, { settings, header: { checkpoint: "tiny" } })];
  const controls = { ...settings, view: ["mars"], checkpoint: "tiny" };
  assert.equal(isOtherRun(lanes, controls), false);
  assert.equal(isOtherRun(lanes, { ...controls, draft: "x" }), false);
  assert.equal(isOtherRun(lanes, { ...controls, view: ["mars", "mars"] }), false);
  const changes = [{ tau: 0.4 }, { block_size: "auto" }, { view: ["mars", "ar"] }, { checkpoint: "chat" }, { max_new_tokens: 9 }]; // prettier-ignore
  for (const moved of changes) assert.equal(isOtherRun(lanes, { ...controls, ...moved }), true, JSON.stringify(moved));
  const ranWith = (method, changes) => [laneOf(PLAIN, { settings: { ...settings, method, ...changes }, header: { checkpoint: "tiny" } })]; // prettier-ignore
  assert.equal(isOtherRun(ranWith("jacobi"), { ...controls, view: ["jacobi"], block_size: "auto" }), false); // replaced by a number
  const blocks = ranWith("block_diffusion", { tau: 0.95, repetition_penalty: 1 });
  const chosen = { ...controls, view: ["block_diffusion"], repetition_penalty: 1.2 };
  assert.equal(isOtherRun(blocks, chosen), false); // a lossless τ is for drafts, and penalties are refused
  assert.equal(isOtherRun(blocks, { ...chosen, lossless: false }), true);
});
