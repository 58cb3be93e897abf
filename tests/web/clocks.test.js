import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { Playhead } from "../../assets/web/core/playhead.js";
import { laneSpeedup, speedup, speedupRemark, speedupText } from "../../assets/web/core/speedup.js";
import { arOf, laneOf, PLAIN } from "./runs.js";

describe("where a reader stands", () => {
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
});

describe("speedup", () => {
  const timed = (tokens, num, seconds) => ({ tokens, seconds: Array.from({ length: num }, () => seconds) });

  test("a speedup is the ratio of tokens per second", () => {
    const found = speedup(timed(80, 20, 0.1), timed(80, 80, 0.1)); // 40 against 10 tokens per second
    assert.deepEqual([found.kind, found.ratio.toFixed(6)], ["faster", "4.000000"]);
    assert.equal(speedupText(found), "4.00×");
    assert.equal(speedupRemark(found), "4.00 to 4.00 in repeats");
  });

  test("below 1 it is slower, at 1 the same", () => {
    assert.equal(speedup(timed(40, 40, 0.2), timed(40, 40, 0.1)).kind, "slower");
    assert.equal(speedup(timed(40, 40, 0.1), timed(40, 40, 0.1)).kind, "same");
    const written = speedup(timed(40, 40, 0.1003), timed(40, 40, 0.1)); // 0.997
    assert.deepEqual([written.kind, speedupText(written)], ["same", "1.00×"]);
  });

  test("nothing is said of less than twenty tokens, nor of what was not measured", () => {
    const short = speedup(timed(19, 19, 0.1), timed(40, 40, 0.1));
    assert.deepEqual([speedupText(short), speedupRemark(short)], ["too short to time", "under 20 tokens"]);
    const none = speedup(timed(0, 0, 0.1), timed(40, 40, 0.1));
    assert.deepEqual([speedupText(none), speedupRemark(none)], ["–", ""]);
  });

  test("forwards that vary too much are noise", () => {
    const wild = { tokens: 40, seconds: [0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.9] };
    assert.equal(speedupText(speedup(wild, timed(40, 40, 0.1))), "noisy");
  });

  test("more than the forwards saved can bring is a disturbance", () => {
    const found = speedup(timed(40, 20, 0.05), timed(40, 40, 0.1), 2);
    assert.equal(found.kind, "noisy");
    assert.equal(speedupRemark(found), "4.00×, but only 2.00 times fewer forwards");
  });

  test("two lanes are compared as far as they are shown", () => {
    assert.equal(laneSpeedup(laneOf(PLAIN), arOf([1, 2, 3])).kind, "short");
  });
});
