import assert from "node:assert/strict";
import { test } from "node:test";

import { lineOf, parted, readValue, statusLine, valueOf } from "../../assets/web/core/wire.js";

const HEAD = { run: "r", lanes: [{ lane: "mars", title: "MARS" }] };

test("a line is a tag, a tab and JSON that may hold tabs", () => {
  assert.equal(lineOf("mars", "{}"), "mars\t{}");
  assert.deepEqual(parted('mars\t{"a":"\t"}'), ["mars", '{"a":"\t"}']);
});

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
  assert.deepEqual(readValue(value), {
    head: HEAD,
    lines: [
      ["mars", "1"],
      ["mars", "2"],
      ["ar", "3"],
      ["verdict", '{"lane":"mars","right":true}'],
      ["status", '{"text":"t","kind":"note"}'],
    ],
  });
});
