import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { broughtBy, linkTo, pack, queryOf, setsControls, unpack } from "../../assets/web/export/link.js";
import { arOf, laneOf, PLAIN } from "./runs.js";

const run = (lanes) => ({
  id: "x",
  head: { run: "x", lanes: lanes.map(({ name, title }) => ({ lane: name, title })) },
  lanes,
});

describe("a link that brings a run", () => {
  globalThis.location = new URL("https://a.b/c/?prompt=x#old");

  test("texts come back as they were, in letters that links leave alone", async () => {
    for (const text of ["", "a", "é – 😀\n\t\u2028", "x".repeat(500_000)]) {
      const packed = await pack(text);
      assert.match(packed, /^[\w-]*$/);
      assert.equal(await unpack(packed), text);
    }
  });

  test("what is no text, or longer than any run, is refused", async () => {
    await assert.rejects(() => unpack("abc"));
    await assert.rejects(async () => unpack(await pack("x".repeat(5_000_000))));
  });

  test("a run travels in the fragment without what the server derives", async () => {
    const lanes = [laneOf(PLAIN), arOf([1, 2])];
    const { link, isLong } = await linkTo(run(lanes));
    assert.equal(isLong, false);
    assert.ok(link.startsWith("https://a.b/c/#run="));
    for (const other of ["", "#", "#else", "#run=", "#run=a/b"]) assert.equal(await broughtBy(other), null);
    const value = await broughtBy(new URL(link).hash);
    const [head, ...lines] = value.trimEnd().split("\n");
    assert.deepEqual(JSON.parse(head).lanes.map(({ lane }) => lane), lanes.map(({ name }) => name)); // prettier-ignore
    assert.deepEqual(
      lines,
      lanes.flatMap((lane) => lane.lines.map((line) => `${lane.name}\t${line.replace(/,"sources":"\w+"/, "")}`)),
    );
  });

  test("a long run has a long link, and a very long run has none", async () => {
    const lane = laneOf(PLAIN);
    let state = 1;
    const noise = () => ((state = (state * 48271) % 2147483647) % 36).toString(36);
    lane.lines.push(JSON.stringify({ noise: Array.from({ length: 20_000 }, noise).join("") }));
    assert.equal((await linkTo(run([lane]))).isLong, true);
    lane.lines.push(JSON.stringify({ noise: Array.from({ length: 200_000 }, noise).join("") }));
    await assert.rejects(
      () => linkTo(run([lane])),
      ({ sentence }) => sentence.length > 0,
    );
  });
});

test("a link with a prompt or settings brings its own controls", () => {
  assert.ok(setsControls(`?${queryOf(["prompt"], ["Hi"])}`));
  assert.ok(setsControls("?tau=0.5"));
  for (const query of ["", "?view=api", "?__theme=dark&tab=live"]) assert.ok(!setsControls(query));
});
