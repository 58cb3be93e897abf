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
import {
  begun,
  arrivalsText,
  NO_GAIN,
  loadFinding,
  curveOf,
  rangeOver,
  saturation,
  steps,
  summaryOf,
  take,
  throughput,
} from "../../assets/web/folds/load.js";
import { CHARTS, isShown, loadFigure } from "../../assets/web/views/load/plots.js";
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

describe("a load", () => {
  const WAYS = [
    { name: "ar", title: "plain AR" },
    { name: "follow", title: "τ by load" },
  ];
  const head = (more = {}) => ({
    run: "r",
    question: "compare",
    kind: "Poisson",
    ways: WAYS,
    seconds: 4,
    requests: 9,
    budget: null,
    ...more,
  });
  const colours = { runs: ["grey", "red", "green", "blue", "violet"], muted: "m", mars: "p" };
  const tick = (way, at, tokens, more = {}) => ({ way, at, tokens, queue: 0, rows: 0, ...more });

  test("each line goes to its way, and a way that begins anew forgets its clock", () => {
    const model = begun(head());
    take(model, "about", { places: 3 });
    take(model, "tick", tick("ar", 0.5, 10));
    take(model, "tick", tick("ar", 1, 20));
    take(model, "agreement", { way: "follow", share: 0.5 });
    assert.equal(model.about.places, 3);
    assert.deepEqual(
      model.ways[0].ticks.map(({ at }) => at),
      [0.5, 1],
    );
    take(model, "tick", tick("ar", 0.25, 3));
    assert.deepEqual(
      model.ways[0].ticks.map(({ at }) => at),
      [0.25],
    );
    assert.equal(model.ways[1].agreement.share, 0.5);
    assert.throws(() => take(model, "tick", tick("other", 1, 1)), /The load test has no method other/);
    assert.throws(() => take(model, "word", { way: "ar" }), /Unknown line tag word/);
  });

  test("figures are medians over the rounds that have ended, with their range; charts show the latest round", () => {
    const model = begun(head());
    const end = (at, rate, p50) =>
      tick("ar", at, 9, { over: true, tokens_per_second: rate, latency: p50 && { p50, p99: 2 * p50 } });
    const [ar] = model.ways;
    assert.equal(summaryOf(ar), undefined);
    take(model, "tick", tick("ar", 0.5, 3, { tokens_per_second: 1 }));
    assert.equal(summaryOf(ar).tokens_per_second, 1);
    assert.equal(rangeOver(ar.ended, (each) => each.tokens_per_second), null); // prettier-ignore
    for (const [rate, p50] of [[30, 3], [10, null], [20, 1]]) take(model, "tick", end(rate / 10, rate, p50)); // prettier-ignore
    const found = summaryOf(ar);
    assert.deepEqual([found.tokens_per_second, found.latency], [20, { p50: 2, p99: 4 }]);
    assert.deepEqual(rangeOver(ar.ended, (each) => each.tokens_per_second), [10, 30]); // prettier-ignore
    assert.deepEqual(rangeOver(ar.ended, (each) => each.latency?.p50), [1, 3]); // prettier-ignore
    assert.deepEqual(ar.ticks.map(({ at }) => at), [1, 2]); // prettier-ignore
  });

  test("a curve has the median of its rounds at each rate", () => {
    const point = (offered, answered, p99) => ({ offered, answered, ttft: p99 && { p50: 1, p99 }, latency: null });
    const curve = curveOf([point(2, 1, 5), point(2, 3, 4), point(2, 2, 9), point(4, 3, null), point(4, 4, 7)]);
    assert.deepEqual(curve.map(({ offered, answered }) => [offered, answered]), [[2, 2], [4, 3.5]]); // prettier-ignore
    assert.equal(curve[0].ttft.p99, 5);
    assert.deepEqual(saturation([point(2, 1, 1), point(2, 5, 1), point(2, 1, 1)]), { rate: 1, isFound: true });
  });

  test("throughput is what was written in the last second, or since the start", () => {
    const ticks = [tick("ar", 0.5, 10), tick("ar", 1, 30), tick("ar", 1.5, 60), tick("ar", 2.5, 60)];
    assert.deepEqual(
      throughput(ticks).map(({ y }) => y),
      [20, 30, 50, 0],
    );
    assert.deepEqual(throughput([]), []);
  });

  test("a decision holds to the next one, the last to the end", () => {
    const decided = [
      { at: 0, tau: 0.95, block_size: "auto", lossless: false },
      { at: 2, tau: 0.5, block_size: "auto", lossless: false },
    ];
    assert.deepEqual(steps(decided, 3), [
      { x: 0, y: 0.95 },
      { x: 2, y: 0.5 },
      { x: 3, y: 0.5 },
    ]);
    assert.deepEqual(steps([{ at: 1, tau: 0, block_size: 4, lossless: true }], 1), [{ x: 1, y: 4 }]);
    assert.deepEqual(steps([], 9), []);
  });

  test("a way saturates at the most that it answered", () => {
    const points = [2, 5, 4].map((answered, i) => ({ answered, offered: 3 * i + 2 }));
    assert.deepEqual(saturation(points), { rate: 5, isFound: true });
    assert.deepEqual(saturation(points.slice(0, 2)), { rate: 5, isFound: false });
    assert.deepEqual(saturation([]), { rate: 0, isFound: false });
  });

  test("the finding has passes and time, also where time was lost", () => {
    const model = begun(head({ ways: [WAYS[0], { name: "lossless", title: "lossless, auto B" }] }));
    const end = (way, tpf, p50) => tick(way, 1, 9, { over: true, tpf, latency: p50 && { p50, p99: 9 } });
    take(model, "tick", end("ar", 1, 2));
    assert.equal(loadFinding(model), "");
    take(model, "tick", end("lossless", 2, 3));
    const passes = "Lossless, auto B: answers in 50 % fewer forward passes than plain AR";
    assert.equal(loadFinding(model), `${passes}; ${NO_GAIN}`);
    const quick = begun(model.head);
    take(quick, "tick", end("ar", 1, 3));
    take(quick, "tick", end("lossless", 2, 2));
    assert.equal(loadFinding(quick), `${passes}; the median answer took 2.00 s instead of 3.00 s.`);
    const unanswered = begun(model.head);
    take(unanswered, "tick", end("ar", 1, null));
    take(unanswered, "tick", end("lossless", 2, 3));
    assert.equal(loadFinding(unanswered), `${passes}.`);
    const curve = begun(head({ question: "curve" }));
    take(curve, "point", { way: "ar", offered: 3, answered: 3, ttft: null, latency: null });
    assert.equal(loadFinding(curve), "Plain AR kept up with 3.00 requests/s.");
  });

  test("the arrivals add up: expected at the rate, and drawn", () => {
    assert.equal(
      arrivalsText(head({ rate: 3, requests: 18 })),
      "Poisson arrivals at 3 requests/s: 12 expected in 4 s, 18 in this random draw.",
    );
    assert.equal(arrivalsText(head({ rate: 2.25 })), "Poisson arrivals at 2.3 requests/s: 9 requests in 4 s.");
    assert.equal(arrivalsText(head({ kind: "recorded", rate: 2 })), "Recorded arrivals: 9 requests in 4 s.");
    const curve = head({ question: "curve", kind: "bursts", rate: 6 });
    assert.equal(arrivalsText(curve), "Arrivals in bursts at up to 6 requests/s, 4 s at each rate.");
  });

  test("charts are those of the question and of the ways there are", () => {
    const shown = (model, isFull) =>
      CHARTS.filter(([, question]) => isShown(model, question, isFull)).map(([key]) => key);
    assert.deepEqual(shown(begun(head()), true), ["rate", "open", "tau"]);
    assert.deepEqual(shown(begun(head()), false), ["rate", "open"]);
    assert.deepEqual(shown(begun(head({ ways: WAYS.slice(0, 1) })), true), ["rate", "open"]);
    assert.deepEqual(shown(begun(head({ question: "curve" })), false), ["answered", "waits"]);
  });

  test("each way draws its own line, and the same model draws the same figure", () => {
    const model = begun(head());
    take(model, "tick", tick("ar", 1, 30, { queue: 1, rows: 3 }));
    take(model, "tick", tick("follow", 2, 50, { queue: 1 }));
    take(model, "decision", { way: "follow", at: 0, tau: 0.9, block_size: "auto", lossless: false });
    const figure = loadFigure("open", model, colours);
    assert.deepEqual(
      figure.data.map(({ y, line }) => [y, line.color]),
      [
        [[4], "grey"],
        [[1], "blue"],
      ],
    );
    assert.deepEqual(loadFigure("open", model, colours), figure);
    take(model, "about", { places: 3 });
    const [slots] = loadFigure("open", model, colours).layout.shapes;
    assert.deepEqual([slots.y0, slots.y1], [3, 3]);
    assert.deepEqual(
      loadFigure("tau", model, colours).data.map(({ x, y }) => [x, y]),
      [
        [
          [0, 2],
          [0.9, 0.9],
        ],
      ],
    );
  });

  test("a curve is drawn against what was offered", () => {
    const model = begun(head({ question: "curve" }));
    take(model, "point", { way: "ar", offered: 3, answered: 2, ttft: { p50: 1, p99: 4 }, latency: null });
    take(model, "point", { way: "ar", offered: 6, answered: 2.5, ttft: null, latency: null });
    const [ar] = loadFigure("answered", model, colours).data;
    assert.deepEqual(
      [ar.x, ar.y],
      [
        [3, 6],
        [2, 2.5],
      ],
    );
    assert.deepEqual(loadFigure("waits", model, colours).data[0].y, [4, NaN]);
  });
});
