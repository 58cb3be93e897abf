// Buttons that save a chart as a picture (PNG, SVG) or as a table (CSV).

import { coloursOf } from "../core/colours.js";
import { button, make, shape } from "../core/dom.js";
import { csvOf, download, textBlob } from "../core/files.js";
import { blobOf, canvasOf, loaded } from "../core/pictures.js";

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "display"]; // prettier-ignore

/**
 * @param {string} name title of the chart, from which the file names are derived
 * @param {Record<"png" | "svg" | "csv", () => Promise<Blob | null>>} blobs null if the chart cannot be drawn
 */
export function saveButtons(name, blobs) {
  const words = name.toLowerCase().match(/[a-z0-9]+/g) || ["chart"];
  const buttons = /** @type {const} */ (["png", "svg", "csv"]).map((format) => {
    const text = format.toUpperCase();
    return button({ class: "rv-save", "aria-label": `Save “${name}” as ${text}` }, text, async () => {
      const blob = await blobs[format]();
      if (blob) download(`${words.join("-")}.${format}`, blob);
    });
  });
  return make("span", "rv-saves", ...buttons);
}

/** @param {(string | number)[][]} rows */
export const tableBlob = (rows) => textBlob(csvOf(rows), "text/csv");

/**
 * Creates the buttons that save a chart drawn as an SVG element. rows: returns its points as a table whose first row
 * has the headings. note: returns the text below the chart in the picture.
 * @param {string} name
 * @param {SVGElement} svg
 * @param {{ rows(): (string | number)[][], note(): string }} given
 */
export const svgSaves = (name, svg, { rows, note }) =>
  saveButtons(name, {
    png: async () => rastered(standalone(svg, name, note()), svg),
    svg: async () => textBlob(standalone(svg, name, note()), "image/svg+xml"),
    csv: async () => tableBlob(rows()),
  });

const HEAD = 28; // height in pixels of the title, and of the note

/**
 * Returns the text of an SVG file: the element with its current styles, a background, a title and a note.
 * @param {SVGElement} svg
 * @param {string} title
 * @param {string} note
 */
function standalone(svg, title, note) {
  const copy = /** @type {SVGElement} */ (svg.cloneNode(true));
  const originals = [...svg.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((node, i) => {
    const style = getComputedStyle(originals[i]);
    for (const name of STYLES) node.setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute("y", String(HEAD));
  const { width, height } = sizeOf(svg);
  const { surface, ink, muted, font } = coloursOf(svg);
  const size = { width, height, viewBox: `0 0 ${width} ${height}` };
  const file = shape(
    "svg",
    size,
    shape("rect", { width, height, fill: surface }),
    shape("text", { x: 12, y: 19, fill: ink, "font-family": font, "font-size": 14 }, title),
    shape("text", { x: 12, y: height - 9, fill: muted, "font-family": font, "font-size": 11 }, note),
    copy,
  );
  return new XMLSerializer().serializeToString(file);
}

/** @param {SVGElement} svg */
function sizeOf(svg) {
  const { width, height } = svg.getBoundingClientRect();
  return { width, height: height + 2 * HEAD };
}

/**
 * Converts the text of an SVG file to a PNG file.
 * @param {string} text
 * @param {SVGElement} svg
 */
async function rastered(text, svg) {
  const { width, height } = sizeOf(svg);
  const { canvas, draw } = canvasOf(width, height, coloursOf(svg).surface);
  const picture = await loaded(`data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`);
  draw.drawImage(picture, 0, 0, canvas.width, canvas.height);
  return blobOf(canvas);
}
