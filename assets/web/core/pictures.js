// Canvases, and PNG files made from them.

import { make } from "./dom.js";

const MOST_SCALE = 2; // maximum number of picture pixels per pixel of the page, in each direction
const MOST_SIDE = 16_000; // maximum width and height of a canvas in pixels
const MOST_PIXELS = 120_000_000; // maximum number of pixels of a canvas

/**
 * Returns a canvas filled with a background colour, its drawing context, and its scale: canvas pixels per pixel of the
 * page.
 * @param {number} width
 * @param {number} height
 * @param {string} background
 */
export function canvasOf(width, height, background) {
  const scale = Math.min(MOST_SCALE, MOST_SIDE / height, MOST_SIDE / width, Math.sqrt(MOST_PIXELS / (width * height)));
  const canvas = make("canvas");
  canvas.width = Math.floor(width * scale);
  canvas.height = Math.floor(height * scale);
  const draw = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  draw.fillStyle = background;
  draw.fillRect(0, 0, canvas.width, canvas.height);
  return { canvas, draw, scale };
}

/** @param {string} url */
export async function loaded(url) {
  const picture = new Image();
  picture.src = url;
  await picture.decode();
  return picture;
}

/** @type {(canvas: HTMLCanvasElement) => Promise<Blob>} */
export const blobOf = (canvas) =>
  new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png");
  });
