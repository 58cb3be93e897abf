import assert from "node:assert/strict";
import { describe, test } from "node:test";

import {
  curvesOf,
  isSameWay,
  marksOf,
  ownMark,
  NOT_COMPARED,
  NO_RUN,
  UNLISTED,
  UNTIMED,
  frontierFinding,
  ownWords,
  rangeOf,
  wayWords,
} from "../../assets/web/charts/frontier.js";
import { frontierLine, planeScale } from "../../assets/web/charts/plane.js";
import { arOf, END, forward, laneOf } from "./runs.js";

describe("the frontier", () => {
  const exact = (value) => ({ value, low: value, high: value });
  const point = (name, quality, tpf) => ({ name, settings: {}, quality, tpf: exact(tpf) });
  const SET = {
    points: [
      point("AR", { value: 0.8, low: 0.7, high: 0.9 }, 1),
      point("bold", exact(0.6), 3),
      point("beaten", exact(0.5), 2),
    ],
  };
  const TEXT = [1, 2, 3, END];
  const wrote = (text) => laneOf([forward(0, text.map((token) => [token, 0.9]), text.length, "eos")]); // prettier-ignore
  const run = (...lanes) => ({ lanes });

  test("ways stand at their percent and tokens per forward, the best are told", () => {
    const [ar, bold, beaten] = marksOf(SET);
    assert.deepEqual([ar.x, ar.y, ar.low, ar.high].map(Math.round), [1, 80, 70, 90]);
    assert.deepEqual([ar.isBest, bold.isBest, beaten.isBest], [true, true, false]);
  });

  test("the visitor's run stands where one answer can: at all or nothing", () => {
    assert.deepEqual(ownMark(run(wrote(TEXT), arOf(TEXT)), "agreement"), {
      x: 4,
      y: 100,
      place: -1,
      isSame: true,
      loop: "",
    });
    const other = ownMark(run(wrote([1, 2, 4, END]), arOf(TEXT)), "agreement");
    assert.deepEqual([other.x, other.y, other.place], [4, 0, 2]);
    assert.match(ownWords(other, "agreement"), /^Your run: .*differs from AR's at token 3/);
    assert.match(ownWords(other, "agreement", "mars-tiny"), /^Your run on mars-tiny: /);
  });

  test("a run says whether its settings are those of a way beside it", () => {
    const settings = { method: "mars", tau: 0.9, block_size: 4, metric: "probability", lossless: false, tau_policy: "fixed" }; // prettier-ignore
    const set = { points: [{ name: "careful", checkpoint: "some", settings: { ...settings, lookup: false } }] };
    const ran = (more, checkpoint = "some") =>
      run(laneOf([], { settings: { tau_policy: "fixed", lookup: true, ...more }, header: { checkpoint } }));
    assert.equal(wayWords(set, ran({})), "Matching method: careful.");
    assert.equal(wayWords(set, ran({ tau: 0.5 })), UNLISTED);
    assert.equal(wayWords(set, ran({}, "another")), UNLISTED);
    const lossless = { ...settings, lossless: true, lookup: true };
    assert.equal(isSameWay(lossless, { ...lossless, lookup: false }), false);
  });

  test("where nobody can tell its quality it is a line", () => {
    assert.ok(Number.isNaN(ownMark(run(wrote(TEXT), arOf(TEXT)), "accuracy").y));
    const alone = ownMark(run(wrote(TEXT)), "agreement");
    assert.ok(Number.isNaN(alone.y));
    assert.ok(ownWords(alone, "agreement").includes(NOT_COMPARED));
  });

  test("no run, a recorded one and one that goes on are none of the visitor's", () => {
    const going = laneOf([forward(0, [[1, 0.9]], 1, "block")], { end: "" });
    assert.equal(ownMark(undefined, "agreement"), null);
    assert.equal(ownMark({ ...run(wrote(TEXT)), recorded: true }, "agreement"), null);
    assert.equal(ownMark(run(going), "agreement"), null);
    assert.equal(ownWords(null, "agreement"), NO_RUN);
  });

  test("the finding is the method with the most tokens per pass at AR's quality, with its speed if it was measured", () => {
    const point = (name, quality, tpf, speed) => ({
      name,
      settings: { method: name === "AR" ? "ar" : "mars" },
      quality: { value: quality },
      tpf: { value: tpf },
      speed: speed ? { value: speed } : null,
    });
    const ar = point("AR", 1, 1, 1);
    const points = [ar, point("bold", 0.1, 3, 2), point("lossless", 1, 1.5, 1.31), point("slow", 1, 1.2, 1)];
    assert.equal(
      frontierFinding({ quality: "agreement", points }),
      "Lossless: 1.50 tokens per forward pass instead of 1, 1.3 times as fast, with the same answers as AR.",
    );
    const accurate = [point("AR", 0.7, 1), point("better", 0.8, 2)];
    assert.equal(
      frontierFinding({ quality: "accuracy", points: accurate }),
      `Better: 2.00 tokens per forward pass instead of 1, at AR's accuracy; ${UNTIMED}.`,
    );
    assert.match(frontierFinding({ quality: "agreement", points: points.slice(0, 2) }), /^No method/);
  });

  test("the line of the best goes in steps to both edges, also of a single one", () => {
    const picture = { width: 120, height: 120, margin: { left: 10, right: 10, top: 10, bottom: 10 } };
    const scale = planeScale(picture, [0, 10], [0, 10]);
    assert.equal(frontierLine([{ x: 5, y: 8 }], scale, picture), "M10 30V30H60V110");
    const best = [{ x: 5, y: 8 }, { x: 7, y: 3 }]; // prettier-ignore
    assert.equal(frontierLine(best, scale, picture), "M10 30V30H60V80H80V110");
    assert.equal(frontierLine([], scale, picture), "");
  });

  test("speed is another axis", () => {
    const point = { name: "one", quality: { value: 1 }, tpf: { value: 2 }, speed: { value: 0.7 }, settings: {} };
    assert.deepEqual([marksOf({ points: [point] })[0].x, marksOf({ points: [point] }, "speed")[0].x], [2, 0.7]);
    assert.ok(rangeOf([{ x: 0.7, y: 50 }]).left < 0.7);
  });

  test("of the paper's curves those of B = 4", () => {
    const curves = [4, 8].map((block_size) => ({ block_size, points: [] }));
    assert.deepEqual(curvesOf({ curves }), [curves[0]]);
  });

  test("axes hold every point and begin and end on their steps", () => {
    const { right, bottom, top, step, share } = rangeOf([
      { x: 1, y: 71.7 },
      { x: 2.28, y: 78.8 },
      { x: 1.4, y: NaN },
    ]);
    assert.ok(right >= 2.28 && bottom <= 71.7 && top >= 78.8);
    assert.equal(bottom % share, 0);
    assert.equal(top % share, 0);
    assert.equal((right / step) % 1, 0);
    const wide = rangeOf([{ x: 1, y: 0 }, { x: 1.1, y: 100 }]); // prettier-ignore
    assert.deepEqual([wide.bottom, wide.top], [0, 100]);
  });
});
