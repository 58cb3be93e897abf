import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { textOf } from "../../assets/web/core/files.js";
import { COMPUTED } from "../../assets/web/core/table.js";
import { fileName, stepsCsv } from "../../assets/web/export/files.js";
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
    await assert.rejects(textOf(latin), { sentence: /^This file is not UTF-8 text\. .*\.$/ });
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

test("a file is called after its run, with no character that a path would need", () => {
  const lane = (header, settings) => ({
    header: { checkpoint: "mars-tiny", date: "2026-11-21T14:30:00+00:00", ...header },
    settings: { method: "mars", tau: 0.95, block_size: 8, ...settings },
  });
  assert.equal(fileName(lane({}, {}), "jsonl"), "mars-tiny-tau0.95-B8-2026-11-21T14-30-00.jsonl");
  assert.equal(fileName(lane({}, { method: "ar" }), "jsonl"), "mars-tiny-ar-2026-11-21T14-30-00.jsonl");
  const hostile = lane({ checkpoint: "../../etc/passwd\n<b>", date: "" }, { block_size: "auto", lossless: true });
  assert.equal(fileName(hostile, "jsonl"), "etc_passwd_b_-tau0.95-Bauto-lossless.jsonl");
});
