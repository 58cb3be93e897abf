import assert from "node:assert/strict";
import { test } from "node:test";

import { Playhead } from "../../assets/web/core/playhead.js";
import { PLAIN, arOf, laneOf } from "./runs.js";

// MARS at 0.2, 0.4, 0.6, 0.8 s; AR at 0.3, 0.6, 0.9 s.
const run = () => ({ lanes: [laneOf(PLAIN, { seconds: 0.2 }), arOf([1, 2, 3], { seconds: 0.3 })] });
const shown = (playhead) => playhead.run.lanes.map((lane) => playhead.shown(lane));

test("at the end everything is shown and followed", () => {
  const playhead = new Playhead(run());
  assert.equal(playhead.isFollowing, true);
  assert.deepEqual(shown(playhead), [4, 3]);
  assert.equal(playhead.length.toFixed(3), "0.900");
});

test("every lane shows the forwards that had ended by then", () => {
  const playhead = new Playhead(run());
  playhead.seek(0.5);
  assert.deepEqual(shown(playhead), [2, 1]);
  playhead.seek(-1);
  assert.deepEqual(shown(playhead), [0, 0]);
  playhead.seek(2);
  assert.equal(playhead.isFollowing, true);
});

test("one forward back and on goes by the main lane", () => {
  const playhead = new Playhead(run());
  playhead.previous();
  assert.deepEqual(shown(playhead), [3, 2]);
  for (let i = 0; i < 6; i += 1) playhead.previous();
  assert.deepEqual(shown(playhead), [0, 0]);
  for (let i = 0; i < 4; i += 1) playhead.next();
  assert.deepEqual(shown(playhead), [4, 2]);
  playhead.next();
  assert.equal(playhead.isFollowing, true);
});

test("holding keeps the place while a live run goes on", () => {
  const live = { lanes: [laneOf(PLAIN.slice(0, 2), { end: "" })] };
  const playhead = new Playhead(live);
  assert.equal(playhead.isLive, true);
  playhead.hold();
  live.lanes[0].push({ type: "step", seconds: 0.1, rows: [PLAIN[2]] }, "");
  assert.deepEqual(shown(playhead), [2]);
});
