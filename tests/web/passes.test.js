import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { CLOCKS } from "../../assets/web/core/clocks.js";
import { idleText } from "../../assets/web/core/folds.js";
import { Playhead, passText, positionText } from "../../assets/web/core/playhead.js";
import { statusOf } from "../../assets/web/views/race/figures.js";
import { passesNote, secondsText } from "../../assets/web/core/result.js";
import { ENDS, STATUS } from "../../assets/web/core/texts.js";
import { headlineOf } from "../../assets/web/views/race/headline.js";
import { skylineOf } from "../../assets/web/views/race/skyline.js";
import { arOf, END, forward, laneOf, LOSSLESS, LOSSLESS_SETTINGS, PLAIN } from "./runs.js";

describe("what a race by passes comes to", () => {
  const text = [1, 2, 3, 5, 6, 7, END];
  const SAME = { place: -1, isShown: false, isSame: true };

  test("passes of both, and that the text is the same", () => {
    assert.deepEqual(headlineOf(laneOf(PLAIN), [arOf(text)], SAME), [
      "4 passes instead of 7",
      " for the same text; too short to time.",
    ]);
  });

  test("on the way there: how far it is; where AR still runs, its place", () => {
    const mars = laneOf(PLAIN);
    assert.deepEqual(headlineOf(mars.at(0), [], null), ["", ""]);
    assert.deepEqual(headlineOf(mars.at(1), [arOf(text).at(1)], null), [
      "",
      "After 1 pass: mars has written 2 tokens, ar 1.",
    ]);
    const apart = headlineOf(mars.at(1), [arOf(text).at(3)], null)[1];
    assert.equal(apart, "Mars: 2 tokens in 1 pass. Ar: 3 tokens in 3 passes.");
    assert.deepEqual(headlineOf(mars, [arOf(text).at(5)], null), ["4 passes.", " Ar is at token 5."]);
  });

  test("where the texts differ; one lane alone", () => {
    const found = { place: 2, isShown: true, isSame: false };
    assert.deepEqual(headlineOf(laneOf(PLAIN), [arOf([1, 2, 9])], found), [
      "1.75 tokens per pass instead of 1.00",
      "; too short to time. The texts diverge at token 3.",
    ]);
    assert.deepEqual(headlineOf(laneOf(PLAIN), [], null), ["4 passes.", " 7 tokens."]);
  });

  test("one line on seconds, once both are over", () => {
    const [mars, ar] = [laneOf(PLAIN, { seconds: 0.25 }), arOf(text, { seconds: 0.2 })];
    assert.equal(secondsText(mars, ar), "measured: 1.00 s, ar 1.40 s (needs at least 20 tokens in both texts)");
    assert.equal(secondsText(mars, ar.at(3)), "");
  });

  test("passes that follow the machine are said to be of this run", () => {
    /** @param {object} settings */
    const noteOf = (settings) => passesNote(laneOf(PLAIN, { settings }));
    assert.match(noteOf({ block_size: "auto", auto_objective: "time" }), /varies slightly between runs/);
    assert.equal(noteOf({ block_size: "auto", auto_objective: "passes" }), "");
    assert.equal(noteOf({ block_size: 4, auto_objective: "time" }), "");
  });

  test("texts of other lengths or content are compared per pass and per second", () => {
    const mars = laneOf(PLAIN, { seconds: 0.25 }); // 7 tokens in 1 s
    for (const other of [
      [1, 2, 3],
      [1, 2, 3, 5, 6, 8, END],
      [...text, 9],
    ]) {
      // prettier-ignore
      const ar = arOf(other, { seconds: 0.2 });
      assert.equal(
        secondsText(mars, ar),
        "measured: 7.00 tokens per second, ar 5.00 (needs at least 20 tokens in both texts)",
      );
      assert.equal(headlineOf(mars, [ar], null)[0], "1.75 tokens per pass instead of 1.00");
    }
  });
});

describe("the sentence on the state of a run", () => {
  const run = { lanes: [laneOf(PLAIN), arOf([1, 2, 3, 5, 6, 7, END])], note: {}, fault: "", pace: 0 };

  test("is that it finished once all is shown, not while the last passes of a lane still land", () => {
    const playhead = new Playhead(run, CLOCKS.passes);
    const over = ["finished", `Both ${ENDS.eos.all}.`];
    assert.deepEqual(statusOf(run, playhead), over);
    playhead.drawn = 6;
    assert.deepEqual(statusOf(run, playhead), ["finished", STATUS.landing]);
    playhead.drawn = 7;
    assert.deepEqual(statusOf(run, playhead), over);
    playhead.seek(3);
    assert.deepEqual(statusOf(run, playhead), ["finished", "An earlier moment of this run."]);
  });
});

describe("the position in a race", () => {
  const run = { lanes: [laneOf(PLAIN, { title: "MARS" }), arOf([1, 2, 3, 5, 6, 7, END])] };
  const playhead = new Playhead(run, CLOCKS.passes);

  test("names the lane that goes on once another has finished, and the pass at which that was", () => {
    playhead.seek(3);
    assert.deepEqual(passText(playhead), ["Pass 3", "each tick is one pass in both lanes"]);
    playhead.seek(6);
    assert.deepEqual(passText(playhead), ["Ar pass 6", "mars finished at pass 4"]);
    playhead.seek(Infinity);
    assert.deepEqual(passText(playhead), ["Ar pass 7", "mars finished at pass 4"]);
  });

  test("counts the passes of the longest lane, or the main lane's at a time", () => {
    playhead.seek(3);
    assert.equal(positionText(playhead), "ar pass 3 of 7");
    const alone = new Playhead({ lanes: [laneOf(PLAIN)] }, CLOCKS.passes);
    assert.equal(positionText(alone), "pass 4 of 4");
    const timed = new Playhead(run, CLOCKS.seconds);
    assert.match(positionText(timed), /^mars pass 4 of 4 · \d+\.\d{3} s$/);
    const live = new Playhead({ lanes: [laneOf(PLAIN, { end: "" }), arOf([1, 2])] }, CLOCKS.passes);
    assert.equal(positionText(live), "pass 4");
  });
});

describe("the skyline", () => {
  test("a column for each pass: AR's own next to the line, what was drafted above it", () => {
    const { columns, line, paths } = skylineOf([laneOf(LOSSLESS, LOSSLESS_SETTINGS), arOf([1, 2, 3, 4])]);
    /** The left upper corners of squares, in whole columns and rows. */
    const cells = (mark) => [...paths[mark].matchAll(/M([\d.]+) ([\d.]+)/g)].map(([, x, y]) => [Math.floor(x), y]);
    assert.equal(columns, 40); // as much room as a short run has
    assert.equal(line, 4);
    assert.deepEqual(cells("masks"), [[1, "2.12"]]); // b, confirmed by the second forward
    assert.deepEqual(cells("ar").slice(0, 3), [[0, "3.12"], [1, "3.12"], [2, "3.12"]]); // prettier-ignore
    assert.deepEqual(cells("ar").slice(3).map(([x]) => x), [0, 1, 2, 3]); // prettier-ignore
    assert.ok(cells("ar").slice(3).every(([, y]) => Number(y) > line)); // prettier-ignore
  });
});

describe("a lane that drafts nothing", () => {
  const own = (num, more = {}) => Array.from({ length: num }, (_, i) => forward(i, [[1, 0.9]], 1, "block", more));

  test("says so after eight forwards of AR's own in a row, where B is left to be chosen", () => {
    const AUTO = { settings: { block_size: "auto", lossless: true }, end: "" };
    const now = "not drafting now: it would not save time here";
    assert.equal(idleText(laneOf(own(7), AUTO)), "");
    assert.equal(idleText(laneOf(own(8), AUTO)), now);
    assert.equal(
      idleText(laneOf(own(8), { ...AUTO, end: "eos" })),
      "stopped drafting: it would not have saved time here",
    );
    assert.equal(idleText(laneOf([...own(8), forward(8, [[1, 0.9], [2, 0.9]], 1, "block")], AUTO)), ""); // prettier-ignore
    assert.equal(idleText(laneOf(own(8), { settings: { block_size: 1 }, end: "" })), "");
    assert.equal(idleText(arOf([1, 1, 1, 1, 1, 1, 1, 1])), "");
  });
});
