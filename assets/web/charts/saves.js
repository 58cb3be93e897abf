// Buttons that save a chart as a picture (PNG, SVG) or as a table (CSV).

import { button, make } from "../core/dom.js";
import { csvOf, download, textBlob } from "../core/files.js";

const SCALE = 2; // pixels of a PNG per pixel of the page
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "display"]; // prettier-ignore
const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} name title of the chart, from which the files get their names
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
 * Returns the buttons of a chart that is an SVG element of the page. rows: its points as a table with a heading. note:
 * what the picture says below the chart.
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

const HEAD = 28; // pixels for the title, and as many for the note

/**
 * Returns an SVG element with its present styles, a background, a title and a note, as the text of a file.
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
  const { width, height } = sizeOf(svg);
  const style = getComputedStyle(svg);
  const get = (/** @type {string} */ name) => style.getPropertyValue(`--rv-${name}`).trim();
  const file = document.createElementNS(SVG, "svg");
  /** @type {(name: string, given: Record<string, string | number>, text?: string) => void} */
  const add = (name, given, text = "") => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(given)) node.setAttribute(key, String(value));
    node.textContent = text;
    file.append(node);
  };
  file.setAttribute("xmlns", SVG);
  file.setAttribute("viewBox", `0 0 ${width} ${height}`);
  file.setAttribute("width", String(width));
  file.setAttribute("height", String(height));
  add("rect", { width, height, fill: get("surface") });
  add("text", { x: 12, y: 19, fill: get("ink"), "font-family": get("sans"), "font-size": 14 }, title);
  add("text", { x: 12, y: height - 9, fill: get("muted"), "font-family": get("sans"), "font-size": 11 }, note);
  copy.setAttribute("y", String(HEAD));
  file.append(copy);
  return new XMLSerializer().serializeToString(file);
}

/** @param {SVGElement} svg */
function sizeOf(svg) {
  const { width, height } = svg.getBoundingClientRect();
  return { width, height: height + 2 * HEAD };
}

/**
 * Draws the text of an SVG file as a PNG.
 * @param {string} text
 * @param {SVGElement} svg
 * @returns {Promise<Blob | null>}
 */
async function rastered(text, svg) {
  const { width, height } = sizeOf(svg);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = make("canvas", { width: Math.round(SCALE * width), height: Math.round(SCALE * height) });
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
