import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Lane } from "../../assets/web/core/trace.js";
import { readValue } from "../../assets/web/core/wire.js";
import { dial, ladder, repair, repairs } from "../../assets/web/explain/rungs.js";

const { lines } = readValue(readFileSync(new URL("../../assets/recordings/sort-words.txt", import.meta.url), "utf8"));
const lane = Lane.of(
  lines.flatMap(([tag, text]) => (tag === "mars" ? [text] : [])),
  { lane: "mars", title: "MARS" },
);
const written = (index) => {
  const { first, count } = lane.steps[index];
  return lane.tokens.slice(first, first + count).map(({ id }) => lane.tokenName(id));
};
const names = (rungs, ...kinds) => rungs.filter(({ kind }) => kinds.includes(kind)).map(({ name }) => name);

test("the rows of a pass: what it wrote, and its drafts, which the next pass is fed", () => {
  for (const { index, fed } of lane.steps) {
    const rungs = ladder(lane, index);
    assert.equal(rungs.length, fed);
    assert.deepEqual(names(rungs, "kept", "ar"), written(index));
    const next = lane.steps[index + 1] && ladder(lane, index + 1);
    const drafts = next?.filter(({ isMask }) => !isMask).slice(1) ?? [];
    assert.deepEqual(names(rungs, "draft"), drafts.map(({ fed: name }) => name)); // prettier-ignore
  }
});

test("a repair replaces the first draft that AR rejects and drops those after it", () => {
  const found = repairs(lane);
  assert.ok(found.length);
  for (const index of found) {
    const rungs = repair(lane, index);
    const at = rungs.findIndex(({ kind }) => kind === "wrong");
    assert.notEqual(rungs[at].fed, rungs[at].name);
    assert.deepEqual(rungs.slice(0, at + 1).map(({ name }) => name), written(index)); // prettier-ignore
    assert.ok(rungs.slice(at + 1).every(({ kind }) => kind === "dropped"));
  }
});

test("a lower threshold accepts no fewer, and marks the first token that AR does not write", () => {
  const index = repairs(lane).at(-1) - 1;
  const counts = [1, 0.9, 0.5, 0.3, 0].map((tau) => dial(lane, index, tau).num);
  assert.deepEqual(counts, counts.toSorted((a, b) => a - b)); // prettier-ignore
  const { num, wrong, meant, rungs } = dial(lane, index, 0);
  assert.equal(num, rungs.length);
  const { fed, name } = repair(lane, index + 1).find(({ kind }) => kind === "wrong");
  assert.equal(rungs[wrong].name, fed);
  assert.equal(meant, name);
  assert.equal(dial(lane, index, rungs[wrong].p + 0.01).wrong, -1);
});
