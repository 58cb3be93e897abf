import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { textOf } from "../../assets/web/core/files.js";
import { COMPUTED } from "../../assets/web/core/table.js";
import { stepsCsv } from "../../assets/web/export/files.js";
import { forward, laneOf } from "./runs.js";

describe("the text of a file", () => {
  const TEXT = "prompt;id\nné 好;7\n";
  const units = [...TEXT].map((character) => character.charCodeAt(0));

  test("UTF-8 with and without a mark, and UTF-16 with one, are the same text", async () => {
    const little = [0xff, 0xfe, ...units.flatMap((unit) => [unit & 255, unit >> 8])];
    const big = [0xfe, 0xff, ...units.flatMap((unit) => [unit >> 8, unit & 255])];
    const files = [TEXT, `\ufeff${TEXT}`, new Uint8Array(little), new Uint8Array(big)];
    for (const file of files) assert.equal(await textOf(new Blob([file])), TEXT);
    assert.equal(await textOf(new Blob([])), "");
  });

  test("other bytes are refused with a sentence", async () => {
    const latin = new Blob([new Uint8Array([0x6e, 0xe9, 0x0a])]);
    await assert.rejects(textOf(latin), { sentence: /^This file is not text in UTF-8: .*\.$/ });
  });
});

describe("a table of the forwards", () => {
  test("a cell that a spreadsheet would compute begins with an apostrophe", () => {
    assert.ok(COMPUTED.includes("\n") && COMPUTED.includes("＝"));
    for (const first of COMPUTED) {
      const vocabulary = { 1: Buffer.from(`${first}1+1`).toString("latin1") }; // bytes, as a trace spells them
      const lane = laneOf([forward(0, [[1, 0.99]], 1, "limit")], { end: "limit", header: { vocabulary } });
      const cell = stepsCsv(lane).trimEnd().split(",").at(-1);
      assert.equal(cell.replaceAll('"', ""), `'${first}1+1`);
    }
  });
});
