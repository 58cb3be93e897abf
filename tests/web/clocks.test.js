import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { Playhead, positionText } from "../../assets/web/core/playhead.js";
import { arOf, laneOf, PLAIN } from "./runs.js";

describe("the position in a run", () => {
  const letters = (num) => Array.from({ length: num }, (_, i) => i + 1);
  // Four forwards of MARS beside seven of AR, which are faster.
  const run = () => ({ lanes: [laneOf(PLAIN, { seconds: 0.9 }), arOf([...letters(6), 50], { seconds: 0.1 })] });
  const shown = (playhead) => playhead.run.lanes.map((lane) => playhead.shown(lane));

  test("each beat grants every lane one forward, however long it took", () => {
    const playhead = new Playhead(run());
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
    const playhead = new Playhead({ lanes: [mars, ar] });
    assert.deepEqual([playhead.length, ...shown(playhead)], [2, 2, 2]);
    mars.push({ type: "step", seconds: 0.1, rows: [PLAIN[2]] }, "");
    assert.deepEqual([playhead.length, ...shown(playhead)], [3, 3, 3]);
    mars.push({ type: "end", reason: "eos", message: "" }, "");
    assert.deepEqual([playhead.length, ...shown(playhead)], [5, 3, 5]);
  });

  test("what came together is drawn beat by beat, as far as the player says", () => {
    const playhead = new Playhead(run());
    playhead.drawn = 3;
    assert.deepEqual(shown(playhead), [3, 3]);
    assert.equal(playhead.isFollowing, true);
    assert.equal(playhead.isAtEnd, false);
    playhead.seek(1);
    assert.deepEqual(shown(playhead), [1, 1]);
  });

  test("moving to the end or past it follows the run; holding stays while a live run continues", () => {
    const live = { lanes: [laneOf(PLAIN.slice(0, 2), { end: "" })] };
    const playhead = new Playhead(live);
    for (const [time, isFollowing] of [
      [1, false],
      [playhead.length, true],
      [1.5, false],
      [9, true],
    ]) {
      playhead.seek(time);
      assert.deepEqual([playhead.isLive, playhead.isFollowing], [true, isFollowing]);
    }
    playhead.hold();
    live.lanes[0].push({ type: "step", seconds: 0.1, rows: [PLAIN[2]] }, "");
    assert.deepEqual(shown(playhead), [2]);
  });

  test("a lane that was stopped is not called finished", () => {
    const lanes = [laneOf(PLAIN, { end: "cancelled" }), arOf(letters(7))];
    assert.match(positionText(new Playhead({ lanes })), /^Pass 7 of 7.*stopped at 4$/);
    lanes[0].end.reason = "eos";
    assert.match(positionText(new Playhead({ lanes })), /finished at 4$/);
  });
});
