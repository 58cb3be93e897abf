import assert from "node:assert/strict";
import { test } from "node:test";

import { aloneText, bytesOf, incompleteTail, joinBytes, shown, visible } from "../../assets/web/core/bytes.js";

const bytes = (...values) => Uint8Array.from(values);

test("a token's text stands for its bytes", () => {
  assert.deepEqual(bytesOf("A\u00e9"), bytes(0x41, 0xe9));
});

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

test("bytes are joined in order", () => {
  assert.deepEqual(joinBytes(bytes(1, 2), bytes(3)), bytes(1, 2, 3));
});

test("a piece of a character is named by its bytes", () => {
  assert.equal(aloneText(bytes(0xc3, 0xa9)), "é");
  assert.equal(aloneText(bytes(0xc3)), "⟨C3⟩");
});

test("what has no ink is made visible, and nothing turns the reading direction around", () => {
  assert.equal(visible(" a\n\u200b"), "␣a⏎‹200B›");
  assert.equal(shown("a\u202eb"), "a\ufffdb");
});
