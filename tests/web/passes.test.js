import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { idleText } from "../../assets/web/core/folds.js";
import { Playhead } from "../../assets/web/core/playhead.js";
import { statusOf } from "../../assets/web/views/race/figures.js";
import { ENDS, STATUS } from "../../assets/web/core/texts.js";
import { rowOf } from "../../assets/web/views/race/tape.js";
import { arOf, END, forward, laneOf, LOSSLESS, LOSSLESS_SETTINGS, PLAIN } from "./runs.js";

describe("the sentence on the state of a run", () => {
  const run = { lanes: [laneOf(PLAIN), arOf([1, 2, 3, 5, 6, 7, END])], note: {}, fault: "", pace: 0 };

  test("is that it finished once all is shown, not while the last passes of a lane still land", () => {
    const playhead = new Playhead(run);
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

test("a row of the tape has a column for each pass: AR's own token below, what was drafted above it", () => {
  const { height, paths } = rowOf(laneOf(LOSSLESS, LOSSLESS_SETTINGS), 40);
  /** The left upper corners of squares, in whole columns and rows. */
  const cells = (mark) => [...paths[mark].matchAll(/M([\d.]+) ([\d.]+)/g)].map(([, x, y]) => [x, y].map(Math.floor));
  assert.equal(height, 4); // room for B tokens
  assert.deepEqual(cells("masks"), [[1, 2]]); // b, confirmed by the second forward
  assert.deepEqual(cells("ar"), [[0, 3], [1, 3], [2, 3]]); // prettier-ignore
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
    const declined = own(3, { declined: [1.52, 1.6] });
    assert.match(idleText(laneOf(declined, { ...AUTO, end: "limit" })), /1\.5 .* 1\.6×/);
    assert.equal(idleText(laneOf(declined, AUTO)), "");
    assert.equal(idleText(laneOf(own(8), { settings: { block_size: 1 }, end: "" })), "");
    assert.equal(idleText(arOf([1, 1, 1, 1, 1, 1, 1, 1])), "");
  });
});
