import assert from "node:assert/strict";
import { test } from "node:test";

import { identityOf, RunColours } from "../../assets/web/core/colours.js";
import { arOf, laneOf, PLAIN } from "./runs.js";

const dated = (date) => laneOf(PLAIN, { header: { date } });
const [one, two, three] = ["2026-11-20", "2026-11-21", "2026-11-22"].map(dated);

test("a run is itself however often its trace is read, and no other", () => {
  assert.equal(identityOf(one.header), identityOf(dated("2026-11-20").header));
  assert.equal(new Set([one, two, three].map(({ header }) => identityOf(header))).size, 3);
});

test("a run wears its method's colour whatever is pinned, and keeps it when it is pinned itself where it is free", () => {
  const colours = new RunColours();
  assert.deepEqual([one, two, arOf([1])].map((lane) => colours.placeOf(lane)), [1, 1, 0]); // prettier-ignore
  assert.deepEqual([colours.placeFor(one), colours.placeFor(arOf([1]))], [1, 0]);
  colours.keep(new Map([[identityOf(one.header), 1]]));
  assert.deepEqual([one, two, three].map((lane) => colours.placeOf(lane)), [1, 1, 1]); // prettier-ignore
  assert.equal(colours.placeFor(two), 6);
  assert.deepEqual([colours.isKept(one), colours.isKept(two)], [true, false]);
  colours.keep(new Map([[identityOf(two.header), 6]]));
  assert.deepEqual([one, two, three].map((lane) => colours.placeOf(lane)), [1, 6, 1]); // prettier-ignore
});

test("the first run beside a branch by the same method wears another colour", () => {
  const first = laneOf(PLAIN, {}, "first");
  assert.deepEqual([one, first].map((lane) => new RunColours().placeOf(lane)), [1, 6]); // prettier-ignore
});

test("where all colours are taken, the one that fewest have is worn again, and plain AR's grey takes none", () => {
  const colours = new RunColours();
  colours.keep(new Map([0, 0, 1, 1, 2, 3, 4, 5, 6].map((place, i) => [String(i), place])));
  assert.equal(colours.placeFor(one), 6);
});

test("pinning a lane leaves the colours of the lanes beside it alone", () => {
  const colours = new RunColours();
  const race = ["mars", "jacobi", "speculative"].map((method) => laneOf(PLAIN, { settings: { method } }, method));
  const before = race.map((lane) => colours.placeOf(lane));
  assert.deepEqual(before, [1, 3, 4]);
  for (const lane of race) {
    colours.keep(new Map([[identityOf(lane.header), colours.placeFor(lane)]]));
    assert.deepEqual(race.map((each) => colours.placeOf(each)), before); // prettier-ignore
  }
});

test("who draws is told when pinned runs change", () => {
  const colours = new RunColours();
  let told = 0;
  colours.listeners.add(() => {
    told += 1;
  });
  colours.keep(new Map());
  assert.equal(told, 1);
});
