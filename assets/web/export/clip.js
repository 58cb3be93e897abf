// Creates a clip of six seconds of a race in the browser, as WebM or GIF. The lanes are drawn pass by pass; the last
// picture shows the result in passes and in seconds, the model, the machine and the page's address.

import { isRightToLeft, shown } from "../core/bytes.js";
import { coloursOf } from "../core/colours.js";
import { make } from "../core/dom.js";
import { folds, headerOf, mainLane } from "../core/folds.js";
import { loopText } from "../core/loops.js";
import { isSameText, passesText, secondsText } from "../core/result.js";
import { UNKNOWN, isTimed, laneSpeedup, speedupText } from "../core/speedup.js";
import { capital, counted, figure, joined, whole } from "../core/words.js";
import { Gif } from "./gif.js";

const [WIDTH, HEIGHT] = [1200, 675];
const MARGIN = 44;
const RACE_SECONDS = 4.4;
const CARD_SECONDS = 1.6;
const PER_SECOND = { webm: 30, gif: 10 };
const VIDEO = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm", "video/mp4"];
const BITS_PER_SECOND = 2_500_000; // keeps a clip below two megabytes
const SIZES = [34, 28, 22]; // font sizes; the first one at which the whole text fits is used, otherwise the last
const LEADING = 1.5; // line height as a multiple of the font size
const [TEXT_TOP, TEXT_BOTTOM] = [232, 650];
const NO_VIDEO = "This browser cannot record video. Use the GIF.";

/** @typedef {{ text: string, x: number, width: number, line: number, count: number, isRtl: boolean }} Word */
/** @typedef {{ lane: Lane, pieces: Word[][], left: number, width: number }} Side */

export const seconds = RACE_SECONDS + CARD_SECONDS;

class Film {
  /**
   * @param {Run} run
   * @param {HTMLElement} root element with the style that defines the colours
   */
  constructor(run, root) {
    this.colours = coloursOf(root);
    this.canvas = make("canvas");
    this.canvas.width = WIDTH;
    this.canvas.height = HEIGHT;
    const pen = this.canvas.getContext("2d", { willReadFrequently: true, alpha: false });
    this.pen = /** @type {CanvasRenderingContext2D} */ (pen);
    const main = mainLane(run);
    const other = run.lanes.find((lane) => lane !== main && lane.isAr) || run.lanes.find((lane) => lane !== main);
    const lanes = other ? [main, other] : [main];
    const width = (WIDTH - MARGIN * (lanes.length + 1)) / lanes.length;
    this.size = SIZES[0];
    /** @type {Side[]} */
    this.sides = [];
    for (const size of SIZES) {
      this.size = size;
      this.sides = lanes.map((lane, i) => this.laidOut(lane, MARGIN + i * (width + MARGIN), width));
      if (this.sides.every(({ pieces }) => (pieces.flat().at(-1)?.line ?? 0) < this.numLines)) break;
    }
    this.header = headerOf(main);
    this.beats = Math.max(...lanes.map(({ steps }) => steps.length));
  }

  /**
   * Lays out a lane's text. Returns the pieces of text of each pass with their positions; paragraphs in a right-to-left
   * script start at the right. The width of a piece is the amount by which it lengthens its line, since letters may
   * join across pieces.
   * @param {Lane} lane
   * @param {number} left
   * @param {number} width
   * @returns {Side}
   */
  laidOut(lane, left, width) {
    this.font(this.size);
    const whole = lane.tokens.map(({ text }) => text).join("");
    const isRtl = whole.split("\n").map(isRightToLeft); // by paragraph
    /** @param {string} text */
    const measure = (text) => this.pen.measureText(text).width;
    let [written, line, paragraph] = ["", 0, 0];
    /** @type {Word[][]} */
    const pieces = lane.steps.map(() => []);
    for (const { text, step } of lane.tokens) {
      for (const part of shown(text).split(/(\n)/)) {
        if (part === "\n") [written, line, paragraph] = ["", line + 1, paragraph + 1];
        else if (part) {
          if (written && measure(written + part) > width) [written, line] = ["", line + 1];
          const drawn = written ? part : part.trimStart();
          const from = measure(written);
          const to = measure(written + drawn);
          const x = isRtl[paragraph] ? width - to : from;
          pieces[step.index].push({
            text: drawn,
            x,
            width: to - from,
            line,
            count: step.count,
            isRtl: isRtl[paragraph],
          });
          written += drawn;
        }
      }
    }
    return { lane, pieces, left, width };
  }

  // The number of lines of text that fit below each other in the clip at the current font size.
  get numLines() {
    return Math.floor((TEXT_BOTTOM - TEXT_TOP) / (this.size * LEADING));
  }

  /**
   * @param {number} size
   * @param {number} [weight]
   */
  font(size, weight = 400) {
    this.pen.font = `${weight} ${size}px ${this.colours.font}`;
  }

  /**
   * Draws one line of text; if it is wider than `width`, it is shortened and ends with an ellipsis.
   * @param {string} words
   * @param {number} x
   * @param {number} y
   * @param {string} colour
   * @param {number} [width]
   */
  words(words, x, y, colour, width = WIDTH - 2 * MARGIN) {
    let line = shown(words).replace(/\s+/g, " ");
    while (line.length > 1 && this.pen.measureText(line).width > width) line = `${line.slice(0, -2).trimEnd()}…`;
    this.pen.fillStyle = colour;
    this.line(line, x, y, width);
  }

  /**
   * Draws one line of text in the largest font size at which the line fits; the size is at least a third of `largest`.
   * @param {string} words
   * @param {number} largest
   * @param {number} weight
   * @param {number} y
   * @param {string} colour
   */
  fitted(words, largest, weight, y, colour) {
    let size = largest;
    this.font(size, weight);
    while (size > largest / 3 && this.pen.measureText(words).width > WIDTH - 2 * MARGIN) this.font((size -= 1), weight);
    this.words(words, MARGIN, y, colour);
  }

  /**
   * Draws one line of text; text in a right-to-left script starts at the right end.
   * @param {string} text
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {boolean} [isRtl]
   */
  line(text, x, y, width, isRtl = isRightToLeft(text)) {
    const { pen } = this;
    pen.direction = isRtl ? "rtl" : "ltr";
    pen.textAlign = isRtl ? "right" : "left";
    pen.fillText(text, isRtl ? x + width : x, y);
  }

  /** @param {number} time in seconds */
  draw(time) {
    const { pen, colours } = this;
    pen.fillStyle = colours.surface;
    pen.fillRect(0, 0, WIDTH, HEIGHT);
    pen.textBaseline = "alphabetic";
    if (time >= RACE_SECONDS) return this.card();
    const beat = Math.min(this.beats, Math.ceil((time / RACE_SECONDS) * this.beats));
    this.font(26, 600);
    this.words(this.header.prompt, MARGIN, 62, colours.ink);
    for (const side of this.sides) this.side(side, Math.min(beat, side.lane.steps.length), beat);
  }

  /**
   * Draws a lane in its state after `numShown` passes. beat: number of passes that the race has played, which is higher
   * than `numShown` once this lane has finished.
   * @param {Side} side
   * @param {number} numShown
   * @param {number} beat
   */
  side({ lane, pieces, left, width }, numShown, beat) {
    const { pen, colours } = this;
    const colour = lane.isAr ? colours.ar : colours.mars;
    this.font(22, 600);
    this.words(lane.title, left, 116, colour, width);
    this.font(64, 700);
    this.words(whole(numShown), left, 188, colour, width);
    const past = pen.measureText(whole(numShown)).width + 12;
    this.font(22);
    const last = lane.steps[numShown - 1];
    const num = last ? last.first + last.count : 0;
    this.words(`passes, ${counted(num, "token")}`, left + past, 188, colours.muted, width - past);
    pen.fillStyle = colours.grid;
    pen.fillRect(left, 202, width, 6);
    pen.fillStyle = colour;
    pen.fillRect(left, 202, (width * numShown) / this.beats, 6);
    const lines = pieces.slice(0, numShown).flat();
    const first = Math.max(0, (lines.at(-1)?.line ?? 0) - this.numLines + 1);
    this.font(this.size);
    pieces.slice(0, numShown).forEach((group, index) => {
      for (const piece of group)
        if (piece.line >= first)
          this.ground(piece, left, piece.line - first, index === numShown - 1 && numShown === beat, colour);
    });
    pen.fillStyle = colours.ink;
    for (let line = first; line < first + this.numLines; line += 1) {
      const words = lines.filter((piece) => piece.line === line);
      if (!words.length) continue;
      const y = TEXT_TOP + (line - first) * this.size * LEADING + this.size * 1.05;
      this.line(words.map(({ text }) => text).join(""), left, y, width, words[0].isRtl);
    }
  }

  /**
   * Draws the background of a piece of text, and a bar below it if it was written by the latest pass (isNew).
   * @param {Word} piece
   * @param {number} left
   * @param {number} line
   * @param {boolean} isNew
   * @param {string} colour
   */
  ground({ x, width, count }, left, line, isNew, colour) {
    const { pen, colours } = this;
    const leading = this.size * LEADING;
    const y = TEXT_TOP + line * leading;
    if (count > 1) {
      pen.fillStyle = colours.bars[Math.min(count, 5) - 1];
      pen.globalAlpha = 0.55;
      pen.fillRect(left + x, y, width, leading - 5);
      pen.globalAlpha = 1;
    }
    if (!isNew) return;
    pen.fillStyle = colour;
    pen.fillRect(left + x, y + leading - 6, width, 3);
  }

  // Draws the last picture of the clip, which shows the result.
  card() {
    const { colours, header, sides } = this;
    const lanes = sides.map(({ lane }) => lane);
    const [headline, second] = headlineOf(lanes);
    this.fitted(headline, 60, 700, 240, colours.mars);
    this.fitted(second, 38, 600, 302, colours.ink);
    this.fitted(timedText(lanes[0], lanes[1]), 26, 400, 350, colours.ink);
    this.font(26);
    this.words(`“${header.prompt}”`, MARGIN, 406, colours.muted);
    this.words(joined(header.checkpoint, header.hardware, header.dtype), MARGIN, 470, colours.ink);
    this.words(addressOf(location), MARGIN, 512, colours.mars);
    this.font(20);
    this.words("MARS live: several tokens per forward pass", MARGIN, 600, colours.muted);
  }
}

/**
 * Returns the line of the last picture with the measured times and the speed comparison.
 * @param {Lane} main
 * @param {Lane | undefined} other
 */
function timedText(main, other) {
  const speedup = other ? laneSpeedup(main, other) : UNKNOWN;
  return joined(capital(secondsText(main, other)), isTimed(speedup) && speedupText(speedup));
}

/**
 * Returns the two lines of the last picture with the result: the passes of both lanes or, if the texts differ, their
 * tokens per pass. If a text repeats itself, the first line says so, and all figures count only the text before.
 * @param {Lane[]} lanes
 * @returns {[first: string, second: string]}
 */
export function headlineOf(lanes) {
  const [main, other] = lanes;
  const isSame = !other || isSameText(main, other);
  const passes = passesText(main, isSame);
  const headline = isSame ? `${passes} for ${counted(folds.tokens(main), "token")}.` : `${passes}.`;
  const loop = loopText(lanes);
  /** @type {(otherText: string) => [first: string, second: string]} */
  const lines = (otherText) =>
    loop ? [`${loop}.`, `Up to that point: ${headline} ${otherText}`.trimEnd()] : [headline, otherText];
  if (!other) return lines("");
  const title = other.isAr ? "Plain AR" : other.title;
  const result = isSame ? `${whole(folds.forwards(other))}, for the same text` : figure(folds.perForward(other));
  return lines(`${title}: ${result}.`);
}

// Host names that are reachable only from the same machine, in the forms to which browsers normalise them.
const LOOPBACK =
  /^(?:(?:.+\.)?localhost\.?|127(?:\.\d+){3}|0\.0\.0\.0|\[::1?\]|\[::ffff:(?:7f[\da-f]{2}:[\da-f]+|0:0)\])$/;

/**
 * Returns the page's address without its query; "" for a file and for an address that only the same machine can open.
 * @param {Pick<Location, "protocol" | "host" | "hostname" | "pathname">} given
 */
export const addressOf = ({ protocol, host, hostname, pathname }) =>
  protocol.startsWith("http") && !LOOPBACK.test(hostname) ? `${host}${pathname}`.replace(/\/$/, "") : "";

/** @param {number} milliseconds */
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/**
 * Returns the clip as a video. Recording takes as long as the clip, because the video is recorded while it plays. If
 * the browser cannot record video, throws an error with a `sentence` for the visitor.
 * @param {Run} run
 * @param {HTMLElement} root
 */
export async function clipVideo(run, root) {
  const type = VIDEO.find((format) => window.MediaRecorder?.isTypeSupported(format));
  if (!type) throw Object.assign(new Error(NO_VIDEO), { sentence: NO_VIDEO });
  const film = new Film(run, root);
  film.draw(0);
  const stream = film.canvas.captureStream(PER_SECOND.webm);
  const recorder = new MediaRecorder(stream, { mimeType: type, videoBitsPerSecond: BITS_PER_SECOND });
  /** @type {Blob[]} */
  const parts = [];
  recorder.ondataavailable = ({ data }) => parts.push(data);
  const isOver = new Promise((resolve) => (recorder.onstop = resolve));
  recorder.start();
  const began = performance.now();
  for (let time = 0; time < seconds; time = (performance.now() - began) / 1000) {
    film.draw(time);
    await pause(1000 / PER_SECOND.webm);
  }
  film.draw(seconds);
  recorder.stop();
  await isOver;
  for (const track of stream.getTracks()) track.stop();
  const [kind] = type.split(";");
  return { extension: kind.split("/")[1], blob: new Blob(parts, { type: kind }) };
}

/**
 * @param {Run} run
 * @param {HTMLElement} root
 */
export async function clipGif(run, root) {
  const film = new Film(run, root);
  const picture = (/** @type {number} */ time) => {
    film.draw(time);
    return film.pen.getImageData(0, 0, WIDTH, HEIGHT);
  };
  const gif = new Gif(WIDTH, HEIGHT, [picture(RACE_SECONDS / 2), picture(RACE_SECONDS * 0.99), picture(seconds)]);
  const num = Math.min(film.beats, Math.floor(RACE_SECONDS * PER_SECOND.gif));
  for (let i = 1; i <= num; i += 1) {
    gif.add(picture(((i - 0.5) / num) * RACE_SECONDS), RACE_SECONDS / num);
    await pause(0); // keeps the page responsive
  }
  gif.add(picture(seconds), CARD_SECONDS);
  return gif.blob();
}
