// What a race shows as its result, in every view.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";

import { deviceOf, passCost, passesResult, resultOf } from "../../assets/web/core/result.js";
import { SPEED } from "../../assets/web/core/table.js";
import { arOf, END, forward, laneOf, PLAIN } from "./runs.js";

const CASES = JSON.parse(readFileSync(new URL("results.json", import.meta.url), "utf-8"));
const TEXT = [1, 2, 3, 5, 6, 7, END];
const figureOf = (result, key) => result.figures.find((figure) => figure.key === key);

test("each case has the words of mars_runtime/runs/speedup.py", () => {
  for (const { differsAt, text, ...counts } of CASES)
    assert.equal(passesResult({ ...counts, differsAt: differsAt ?? -1 }).join(""), text);
});

describe("the headline", () => {
  test("is the passes of both, and whether the texts are the same", () => {
    const same = resultOf(laneOf(PLAIN), [arOf(TEXT)]);
    assert.deepEqual([same.kind, same.first, same.rest], ["same", "4 passes instead of 7", ", same text."]);
    assert.equal(figureOf(same, "perPass").numbers, "7 tokens in 4 passes");
    for (const [other, place] of [
      [[1, 2, 9, END], 3],
      [[1, 2, 3, END], 4],
      [[...TEXT.slice(0, -1), 8, END], 7],
    ]) {
      const result = resultOf(laneOf(PLAIN), [arOf(other)]);
      assert.equal(result.kind, "different");
      assert.match(result.rest, new RegExp(`from token ${place} on`));
      const all = result.first + result.rest + result.figures.map(({ value, numbers }) => value + numbers).join();
      assert.doesNotMatch(all, /instead|times as fast/);
    }
  });

  test("keeps its verdict on the texts with three lanes, whose third is a figure", () => {
    const [ar, third] = [arOf(TEXT), laneOf(PLAIN, {}, "third")];
    const result = resultOf(laneOf(PLAIN), [ar, third]);
    assert.deepEqual([result.kind, result.first], ["same", "4 passes instead of 7"]);
    assert.equal(figureOf(result, "third").value, "4 passes");
    assert.deepEqual(resultOf(laneOf(PLAIN), [third, ar]), result);
  });

  test("has a figure that says where the text repeats itself", () => {
    const rows = [1, 2, 3, 4].map((token, i) =>
      forward(i, [[token, 0.9]], 1, "block", i === 3 ? { loop: [2, 4] } : {}),
    );
    for (const end of ["", "limit"]) {
      const [mars, ar] = ["mars", "ar"].map((name) => laneOf(rows, { end, settings: { method: name } }, name));
      const result = resultOf(mars, [ar]);
      assert.match(figureOf(result, "loop").value, / token 2$/);
      assert.ok(!(result.first + result.rest).includes(figureOf(result, "loop").value));
    }
    assert.equal(figureOf(resultOf(laneOf(PLAIN), [arOf(TEXT)]), "loop"), undefined);
  });

  test("gives no verdict before all lanes have completed their texts", () => {
    const running = resultOf(laneOf(PLAIN), [arOf(TEXT, { end: "" })]);
    assert.deepEqual([running.kind, running.first], ["running", ""]);
    for (const end of ["cancelled", "deadline", "error"]) {
      const { kind, first, rest, figures } = resultOf(laneOf(PLAIN, { end }), [arOf(TEXT)]);
      assert.equal(kind, "stopped");
      assert.doesNotMatch(first + rest, /instead|same|different/);
      assert.deepEqual(figures.map(({ key }) => key), ["perPass"]); // prettier-ignore
    }
    assert.equal(resultOf(laneOf([], { end: "" }), []).kind, "none");
    assert.equal(resultOf(laneOf(PLAIN), []).kind, "alone");
  });
});

describe("the figure of time", () => {
  const tokens = (count) => Array.from({ length: count - 1 }, (_, i) => 1 + (i % 26));
  /** Lanes with the same text of 80 tokens, whose passes swing by `spread`. */
  const race = (perPass, seconds, spread) => {
    const text = [...tokens(80), END];
    const groups = [];
    for (let at = 0; at < text.length; at += perPass) groups.push(text.slice(at, at + perPass));
    let start = 0;
    const rows = groups.map((group, i) => {
      const slots = group.map((token) => [token, 0.99]);
      const step = forward(start, slots, group.length, i === groups.length - 1 ? "eos" : "block", { spread });
      start += group.length;
      return step;
    });
    const ar = text.map((token, i) => forward(i, [[token, 0.99]], 1, token === END ? "eos" : "block", { spread }));
    const settings = { method: "ar" };
    return [laneOf(rows, { seconds }), laneOf(ar, { seconds: 0.1, settings }, "ar")];
  };

  test("is a factor only if its range excludes 1; it is computed from the numbers beside it", () => {
    for (const perPass of [1, 2, 3, 4])
      for (const spread of [0.01, 0.1, 0.4])
        for (let seconds = 0.05; seconds < 0.5; seconds *= 1.17) {
          const [mars, ar] = race(perPass, seconds, spread);
          const result = resultOf(mars, [ar]);
          const { value, numbers } = figureOf(result, "time");
          const margin = Math.exp(Math.hypot(spread, spread, SPEED.apart));
          const ratio = (0.1 * perPass) / seconds;
          const factor = value.match(/^([\d.]+) times as fast on this CPU$/);
          const isClear = ratio / margin > 1 || ratio * margin < 1;
          if (!isClear) assert.ok(!factor, value);
          if (!factor) continue;
          const [mine, theirs] = numbers.match(/[\d.]+/g).map(Number);
          assert.ok(Math.abs(Number(factor[1]) - theirs / mine) <= 0.05 + 1e-9, `${value}: ${numbers}`);
          const passes = result.first.match(/\d+/g).map(Number);
          assert.ok(Number(factor[1]) <= (passes[1] ?? passes[0]) / passes[0] + 1e-9, `${value}: ${result.first}`);
        }
  });

  test("names the device", () => {
    const [mars] = race(2, 0.1, 0.01);
    const on = (hardware, isRecorded = false) => deviceOf({ ...mars, header: { hardware } }, isRecorded);
    assert.deepEqual([on("AMD EPYC, 2 cores"), on("NVIDIA H100")], ["this CPU", "this NVIDIA H100"]);
    assert.equal(on("AMD EPYC, 1 core", true), "the recorded CPU");
  });

  test("a pass is compared with a pass of plain AR", () => {
    const [mars, ar] = race(2, 0.15, 0.01);
    assert.equal(passCost(mars, ar)[0], "150");
    assert.match(passCost(mars, ar)[1], /1\.50 .*100/);
    assert.equal(passCost(mars, mars)[1], "");
  });
});
