// Canvases, and PNG files made from them.

import { make } from "./dom.js";

const MOST_SCALE = 2; // pixels of a picture per pixel of the page
const MOST_SIDE = 16_000; // maximum pixels of a canvas's side, and in total
const MOST_PIXELS = 120_000_000;

/**
 * Returns a canvas filled with a colour, what draws on it, and its pixels per pixel of the page.
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
