// Encodes pictures as an animated GIF (89a) with LZW compression. All frames share one palette, and each frame contains
// only the part that changed. Pure; no DOM.

const BITS = 4; // bits per channel by which colours are distinguished
const SHIFT = 8 - BITS;
const NUM_BINS = 1 << (3 * BITS);
const MOST_COLOURS = 255; // maximum number of colours; one more index marks transparency
const CLEAR = 256; // LZW code that clears the table
const MOST_CODES = 4096;
const HASHED = 1 << 14; // size of the hash table

/** @typedef {{ data: Uint8ClampedArray, width: number, height: number }} Picture */

export class Gif {
  /**
   * @param {number} width
   * @param {number} height
   * @param {Picture[]} samples pictures from which the palette is chosen
   */
  constructor(width, height, samples) {
    this.width = width;
    this.height = height;
    const { colours, indices } = paletteOf(samples);
    this.indices = indices;
    /** @type {Uint8Array | null} */
    this.before = null;
    /** @type {(number[] | Uint8Array)[]} */
    this.parts = [[...text("GIF89a"), ...short(width), ...short(height), 0xf7, 0, 0], colours, LOOP];
  }

  /**
   * @param {Picture} picture
   * @param {number} seconds duration of the frame
   */
  add({ data }, seconds) {
    const current = new Uint8Array(this.width * this.height);
    for (let i = 0, at = 0; i < current.length; i += 1, at += 4)
      current[i] = this.indices[binOf(data[at], data[at + 1], data[at + 2])];
    const box = changed(this.before, current, this.width, this.height);
    const pixels = new Uint8Array(box.width * box.height);
    for (let y = 0, to = 0; y < box.height; y += 1) {
      let from = (box.top + y) * this.width + box.left;
      for (let x = 0; x < box.width; x += 1, from += 1, to += 1)
        pixels[to] = this.before && this.before[from] === current[from] ? MOST_COLOURS : current[from];
    }
    const position = [box.left, box.top, box.width, box.height].flatMap(short);
    const duration = short(Math.round(seconds * 100));
    this.parts.push([0x21, 0xf9, 4, 0x05, ...duration, MOST_COLOURS, 0, 0x2c, ...position, 0, 8], packed(pixels), [0]);
    this.before = current;
  }

  blob() {
    return new Blob([...this.parts.map((part) => new Uint8Array(part)), new Uint8Array([0x3b])], { type: "image/gif" });
  }
}

/** @param {string} letters */
const text = (letters) => [...letters].map((letter) => letter.charCodeAt(0));

/** @param {number} number */
const short = (number) => [number & 255, number >> 8];

const LOOP = [0x21, 0xff, 11, ...text("NETSCAPE2.0"), 3, 1, 0, 0, 0]; // the block that makes the GIF repeat forever

/**
 * @param {number} r
 * @param {number} g
 * @param {number} b
 */
const binOf = (r, g, b) => ((r >> SHIFT) << (2 * BITS)) | ((g >> SHIFT) << BITS) | (b >> SHIFT);

/**
 * Chooses the palette. Similar colours are counted together, in bins. colours: the mean colours of the most frequent
 * bins, as 256 × 3 bytes. indices: for each bin, the index of the nearest of these colours.
 * @param {Picture[]} samples
 */
function paletteOf(samples) {
  const counts = new Float64Array(NUM_BINS);
  const sums = new Float64Array(3 * NUM_BINS);
  for (const { data } of samples) {
    for (let at = 0; at < data.length; at += 4) {
      const bin = binOf(data[at], data[at + 1], data[at + 2]);
      counts[bin] += 1;
      for (let c = 0; c < 3; c += 1) sums[3 * bin + c] += data[at + c];
    }
  }
  const bins = [...counts.keys()].filter((bin) => counts[bin]).sort((a, b) => counts[b] - counts[a]);
  const frequent = bins.slice(0, MOST_COLOURS);
  const colours = new Uint8Array(3 * 256);
  frequent.forEach((bin, index) => {
    for (let c = 0; c < 3; c += 1) colours[3 * index + c] = Math.round(sums[3 * bin + c] / counts[bin]);
  });
  const indices = new Uint8Array(NUM_BINS);
  for (let bin = 0; bin < NUM_BINS; bin += 1) indices[bin] = nearest(bin, colours, frequent.length);
  return { colours, indices };
}

/**
 * @param {number} bin
 * @param {Uint8Array} colours
 * @param {number} count
 */
function nearest(bin, colours, count) {
  const middle = (/** @type {number} */ shift) => (((bin >> shift) & ((1 << BITS) - 1)) << SHIFT) + (1 << (SHIFT - 1));
  const [r, g, b] = [middle(2 * BITS), middle(BITS), middle(0)];
  let [best, least] = [0, Infinity];
  for (let index = 0; index < count; index += 1) {
    const far = (colours[3 * index] - r) ** 2 + (colours[3 * index + 1] - g) ** 2 + (colours[3 * index + 2] - b) ** 2;
    if (far < least) [best, least] = [index, far];
  }
  return best;
}

/**
 * Returns the smallest box that contains all changed pixels. If nothing has changed, the box has a single pixel.
 * @param {Uint8Array | null} before
 * @param {Uint8Array} current
 * @param {number} width
 * @param {number} height
 */
function changed(before, current, width, height) {
  if (!before) return { left: 0, top: 0, width, height };
  let [left, right, top, bottom] = [width, -1, height, -1];
  for (let y = 0, at = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1, at += 1) {
      if (before[at] === current[at]) continue;
      if (x < left) left = x;
      if (x > right) right = x;
      if (y < top) top = y;
      bottom = y;
    }
  }
  if (bottom < 0) return { left: 0, top: 0, width: 1, height: 1 };
  return { left, top, width: right - left + 1, height: bottom - top + 1 };
}

/**
 * Compresses pixels with LZW (codes of 9 to 12 bits). Returns blocks of at most 255 bytes, each preceded by its length.
 * @param {Uint8Array} pixels
 */
function packed(pixels) {
  const keys = new Int32Array(HASHED);
  const codes = new Int16Array(HASHED);
  /** @type {number[]} */
  const bytes = [];
  let [next, size, bits, numBits] = [CLEAR + 2, 9, 0, 0];
  const write = (/** @type {number} */ code) => {
    bits |= code << numBits;
    for (numBits += size; numBits >= 8; numBits -= 8, bits >>>= 8) bytes.push(bits & 255);
  };
  const clear = () => {
    write(CLEAR);
    keys.fill(-1);
    [next, size] = [CLEAR + 2, 9];
  };
  clear();
  let prefix = pixels[0];
  for (let i = 1; i < pixels.length; i += 1) {
    const key = (prefix << 8) | pixels[i];
    let at = (key * 0x9e3779b1) >>> 18;
    while (keys[at] !== -1 && keys[at] !== key) at = (at + 1) % HASHED;
    if (keys[at] === key) {
      prefix = codes[at];
      continue;
    }
    write(prefix);
    prefix = pixels[i];
    if (next === MOST_CODES) {
      clear();
      continue;
    }
    if (next === 1 << size) size += 1;
    keys[at] = key;
    codes[at] = next;
    next += 1;
  }
  write(prefix);
  write(CLEAR + 1);
  if (numBits) bytes.push(bits & 255);
  const blocks = new Uint8Array(bytes.length + Math.ceil(bytes.length / 255));
  for (let from = 0, to = 0; from < bytes.length; from += 255) {
    const some = bytes.slice(from, from + 255);
    blocks[to] = some.length;
    blocks.set(some, to + 1);
    to += some.length + 1;
  }
  return blocks;
}
