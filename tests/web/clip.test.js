import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { addressOf, headlineOf } from "../../assets/web/export/clip.js";
import { Gif } from "../../assets/web/export/gif.js";
import { arOf, laneOf, PLAIN } from "./runs.js";

describe("a clip", () => {
  test("its last picture says passes, and those of plain AR", () => {
    const lane = laneOf(PLAIN);
    assert.deepEqual(headlineOf([lane]), ["4 passes for 7 tokens.", ""]);
    const [, same] = headlineOf([lane, arOf(lane.ids)]);
    assert.equal(same, "Plain AR: 7, for the same text.");
    assert.deepEqual(headlineOf([lane, arOf([1, 2])]), ["1.75 tokens per pass.", "Plain AR: 1.00."]);
    assert.equal(headlineOf([arOf([1])])[0], "1 pass for 1 token.");
  });

  test("it names the page without what was asked of it", () => {
    assert.equal(addressOf(new URL("https://a.b/c/?prompt=x#y")), "a.b/c");
    assert.equal(addressOf(new URL("file:///a/b.html")), "");
  });

  test("it never prints an address that only this machine can open", () => {
    const loopback = [
      ...["http://localhost:7860/", "http://LOCALHOST/", "https://localhost.:1/a", "http://mars.localhost/"],
      ...["http://127.0.0.1:7860/", "http://127.1/", "http://127.8.9.10/", "http://2130706433/", "http://0x7f.1/"],
      ...["http://[::1]:7860/", "http://[0:0:0:0:0:0:0:1]/", "http://[::]/", "http://[::ffff:127.0.0.1]/"],
      ...["http://0.0.0.0:7860/", "http://0/"],
    ];
    for (const address of loopback) assert.equal(addressOf(new URL(address)), "", address);
    const others = ["localhost.example.org", "127.example.org", "10.0.0.1:7860", "[2001:db8::1]", "mars.local"];
    for (const host of others) assert.equal(addressOf(new URL(`http://${host}/`)), host);
  });
});

// A decoder as the format's description has it, apart from what packs.
function unpacked(bytes, numPixels) {
  const data = [];
  let at = 0;
  for (; bytes[at]; at += bytes[at] + 1) data.push(...bytes.subarray(at + 1, at + 1 + bytes[at]));
  let [bits, numBits, place, size] = [0, 0, 0, 9];
  const read = () => {
    for (; numBits < size; numBits += 8) bits |= data[place++] << numBits;
    const code = bits & ((1 << size) - 1);
    bits >>>= size;
    numBits -= size;
    return code;
  };
  const fresh = () => [...Array(258).keys()].map((value) => [value]);
  const found = [];
  let [table, before] = [fresh(), null];
  for (let code = read(); code !== 257; code = read()) {
    if (code === 256)
      [table, before, size] = [fresh(), null, 9]; // prettier-ignore
    else {
      const entry = table[code] ?? [...before, before[0]];
      found.push(...entry);
      if (before && table.length < 4096) table.push([...before, entry[0]]);
      if (table.length === 1 << size && size < 12) size += 1;
      before = entry;
    }
  }
  assert.equal(found.length, numPixels);
  return found;
}

describe("a GIF", () => {
  const picture = (width, height, colourOf) => {
    const data = new Uint8ClampedArray(width * height * 4);
    for (let i = 0; i < width * height; i += 1) data.set([...colourOf(i), 255], 4 * i);
    return { data, width, height };
  };

  test("its pixels come back as they were, of few colours and of many that never repeat", () => {
    let state = 7;
    const noise = () => ((state = (state * 1103515245 + 12345) & 0x7fffffff) >> 16) & 3;
    for (const colour of [
      () => [0, 0, 0],
      (i) => (i % 3 ? [255, 255, 255] : [0, 0, 0]),
      () => [noise() * 80, 0, noise() * 80],
    ]) {
      const given = picture(200, 150, colour);
      const gif = new Gif(200, 150, [given]);
      gif.add(given, 0.5);
      const [head, colours, , frame, packed] = gif.parts;
      assert.equal(String.fromCharCode(...head.slice(0, 6)), "GIF89a");
      assert.deepEqual(frame.slice(3, 8), [5, 50, 0, 255, 0]);
      const pixels = unpacked(packed, 200 * 150);
      pixels.forEach((place, i) => {
        const wanted = [...given.data.slice(4 * i, 4 * i + 3)];
        assert.deepEqual([...colours.slice(3 * place, 3 * place + 3)], wanted);
      });
    }
  });

  test("a later frame holds what changed, and lets the rest show through", () => {
    const first = picture(20, 10, () => [0, 0, 0]);
    const second = picture(20, 10, (i) => (i === 47 || i === 90 ? [240, 0, 0] : [0, 0, 0]));
    const gif = new Gif(20, 10, [first, second]);
    gif.add(first, 0.1);
    gif.add(second, 0.1);
    gif.add(second, 0.1);
    const [, , , , , , frame, packed, , same] = gif.parts;
    assert.deepEqual(frame.slice(9, 17), [7, 0, 2, 0, 4, 0, 3, 0]);
    const pixels = unpacked(packed, 12);
    assert.deepEqual(pixels.map((place) => place === 255), [false, true, true, true, true, true, true, true, true, true, true, false]); // prettier-ignore
    assert.deepEqual(same.slice(13, 17), [1, 0, 1, 0]); // nothing changed
  });
});
