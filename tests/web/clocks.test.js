import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { CLOCKS } from "../../assets/web/core/clocks.js";
import { photoFinish } from "../../assets/web/core/folds.js";
import { Playhead } from "../../assets/web/core/playhead.js";
import { arOf, laneOf, PLAIN } from "./runs.js";

describe("where a reader stands", () => {
  // MARS at 0.2, 0.4, 0.6, 0.8 s; AR at 0.3, 0.6, 0.9 s.
  const run = () => ({ lanes: [laneOf(PLAIN, { seconds: 0.2 }), arOf([1, 2, 3], { seconds: 0.3 })] });
  const shown = (playhead) => playhead.run.lanes.map((lane) => playhead.shown(lane));

  test("at the end everything is shown and followed", () => {
    const playhead = new Playhead(run(), CLOCKS.seconds);
    assert.equal(playhead.isFollowing, true);
    assert.deepEqual(shown(playhead), [4, 3]);
    assert.equal(playhead.length.toFixed(3), "0.900");
  });

  test("every lane shows the forwards that had ended by then", () => {
    const playhead = new Playhead(run(), CLOCKS.seconds);
    playhead.seek(0.5);
    assert.deepEqual(shown(playhead), [2, 1]);
    playhead.seek(-1);
    assert.deepEqual(shown(playhead), [0, 0]);
    playhead.seek(2);
    assert.equal(playhead.isFollowing, true);
  });

  test("one forward back and on goes by the main lane", () => {
    const playhead = new Playhead(run(), CLOCKS.seconds);
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
    const playhead = new Playhead(live, CLOCKS.seconds);
    assert.equal(playhead.isLive, true);
    playhead.hold();
    live.lanes[0].push({ type: "step", seconds: 0.1, rows: [PLAIN[2]] }, "");
    assert.deepEqual(shown(playhead), [2]);
  });
});

describe("passes", () => {
  const letters = (num) => Array.from({ length: num }, (_, i) => i + 1);
  // Four forwards of MARS beside seven of AR, which are faster.
  const run = () => ({ lanes: [laneOf(PLAIN, { seconds: 0.9 }), arOf([...letters(6), 50], { seconds: 0.1 })] });
  const shown = (playhead) => playhead.run.lanes.map((lane) => playhead.shown(lane));

  test("each beat grants every lane one forward, however long it took", () => {
    const playhead = new Playhead(run(), CLOCKS.passes);
    assert.equal(playhead.length, 7);
    assert.deepEqual(shown(playhead), [4, 7]);
    playhead.seek(0);
    for (const wanted of [
      [1, 1],
      [2, 2],
      [3, 3],
      [4, 4],
      [4, 5],
    ]) {
      playhead.next();
      assert.deepEqual(shown(playhead), wanted);
    }
    playhead.previous();
    assert.deepEqual(shown(playhead), [4, 4]);
    playhead.seek(2.7); // between two beats the earlier one is on show
    assert.deepEqual(shown(playhead), [2, 2]);
    playhead.previous();
    assert.deepEqual(shown(playhead), [1, 1]);
  });

  test("a beat is there once every lane that still runs has made it; one that has ended holds up nobody", () => {
    const [mars, ar] = [laneOf(PLAIN.slice(0, 2), { end: "" }), arOf(letters(5), { end: "" })];
    const playhead = new Playhead({ lanes: [mars, ar] }, CLOCKS.passes);
    assert.deepEqual([playhead.length, ...shown(playhead)], [2, 2, 2]);
    mars.push({ type: "step", seconds: 0.1, rows: [PLAIN[2]] }, "");
    assert.deepEqual([playhead.length, ...shown(playhead)], [3, 3, 3]);
    mars.push({ type: "end", reason: "eos", message: "" }, "");
    assert.deepEqual([playhead.length, ...shown(playhead)], [5, 3, 5]);
  });

  test("what came together is drawn beat by beat, as far as the player says", () => {
    const playhead = new Playhead(run(), CLOCKS.passes);
    playhead.drawn = 3;
    assert.deepEqual(shown(playhead), [3, 3]);
    assert.equal(playhead.isFollowing, true);
    assert.equal(playhead.isAtEnd, false);
    playhead.seek(1);
    assert.deepEqual(shown(playhead), [1, 1]);
  });

  test("another clock keeps the forward of the main lane", () => {
    const playhead = new Playhead(run(), CLOCKS.passes);
    playhead.seek(2);
    playhead.goBy(CLOCKS.seconds);
    assert.deepEqual(shown(playhead), [2, 7]);
    playhead.goBy(CLOCKS.passes);
    assert.deepEqual(shown(playhead), [2, 2]);
  });

  test("who ended first depends on the clock", () => {
    const { lanes } = run();
    assert.deepEqual(photoFinish(lanes, CLOCKS.passes), { time: 4, first: lanes[0], other: lanes[1], tokens: 4 });
    assert.equal(photoFinish(lanes, CLOCKS.seconds).first, lanes[1]);
  });
});
