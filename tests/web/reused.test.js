import assert from "node:assert/strict";
import { test } from "node:test";

import { isReadAlike, remarks } from "../../assets/web/views/compare/figures.js";
import { firstText } from "../../assets/web/views/race/figures.js";
import { PLAIN, arOf, laneOf } from "./runs.js";

const warm = () => laneOf(PLAIN, { prefill: { num_reused: 96 } });

test("a time to the first token says how much of the prompt was there before", () => {
  assert.equal(firstText(laneOf(PLAIN), undefined), "600 ms");
  assert.equal(firstText(warm(), undefined), "600 ms · 96 prompt tokens reused");
  assert.equal(firstText(warm(), { ...arOf([1, 2, 3]), title: "AR" }).startsWith("600 ms · AR "), true);
});

test("runs that had more or less of their prompts ready are not compared by their first token", () => {
  const alike = [warm(), warm()];
  assert.equal(isReadAlike(alike), true);
  assert.equal(remarks(alike).join(" ").includes("first token"), false);
  const unlike = [warm(), laneOf(PLAIN)];
  assert.equal(isReadAlike(unlike), false);
  assert.match(remarks(unlike).join(" "), /\(tokens: A 96, B 0\): times to the first token are not comparable/);
});

test("a cut knows what its lane reused", () => {
  assert.equal(warm().at(2).reused, 96);
});
