// Pictures of a view's content, drawn by the browser: text through an SVG with the elements and their styles, charts by
// Plotly. Nothing is fetched; light or dark as the page.

import { coloursOf } from "../core/colours.js";
import { make, put } from "../core/dom.js";
import { environment, joined, minuteOf } from "../core/words.js";
import { Asked } from "../text/asked.js";
import { Pane } from "../text/panes.js";

const WIDTH = 880;
const CHART = { width: 880, height: 260 };
const CAPTION = 28;
const MOST_SIDE = 16_000; // maximum pixels of a canvas's side, and in total
const MOST_PIXELS = 120_000_000;
const WHOLE =
  ".rv-prompt { max-height: none !important; } .rv-text { height: auto !important; overflow: visible !important; contain: none !important; }";
const NOT_XML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu; // also unpaired surrogates

/**
 * Returns the displayed pane of a lane. found: comparison with the other lane's text, null for no other.
 * @param {Lane} lane
 * @param {string} title
 * @param {Compared | null} [found]
 */
export function paneOf(lane, title, found = null) {
  const pane = new Pane(lane, false, { token() {}, choose() {}, leave() {} });
  pane.rendered.button.remove();
  pane.draw(lane);
  if (title !== lane.title) put(pane.title, title);
  if (found) pane.compared(found);
  return pane;
}

/**
 * With the prompt of the text.
 * @param {Lane} lane
 * @param {string} title
 * @param {HTMLElement} root
 * @param {Compared | null} [found]
 */
export function textPng(lane, title, root, found = null) {
  const { element } = paneOf(lane, title, found);
  const asked = new Asked(make("div", "rv-asked"));
  asked.drawRun([lane], null);
  const foot = joined(environment(lane.header), minuteOf(lane.header));
  return elementPng([asked.element, element, make("p", "rv-env", foot)], root, WIDTH);
}

/**
 * Returns elements of a view, laid out at a width, as a PNG.
 * @param {Element[]} elements
 * @param {HTMLElement} root
 * @param {number} width
 */
export async function elementPng(elements, root, width) {
  const style = `position: absolute; left: -20000px; top: 0; width: ${width}px; box-sizing: border-box; padding: 8px 20px 20px; background: var(--rv-surface);`;
  const host = make("section", { class: root.className, style }, make("style", "", WHOLE));
  host.append(make("div", "rv-panes rv-counts", ...elements));
  document.body.append(host);
  const height = Math.ceil(host.getBoundingClientRect().height);
  const background = getComputedStyle(host).getPropertyValue("--rv-surface").trim();
  host.remove();
  host.style.position = "static";
  const picture = await loaded(svgOf(host, { width, height, isDark: Boolean(root.closest(".dark")) }));
  const { canvas, draw, scale } = canvasOf(width, height, background);
  draw.drawImage(picture, 0, 0, width * scale, height * scale);
  return blobOf(canvas);
}

/**
 * @param {HTMLElement} host
 * @param {{ width: number, height: number, isDark: boolean }} given
 */
function svgOf(host, { width, height, isDark }) {
  const body = make("div", isDark ? "dark" : "", make("style", "", stylesOfViews()), host);
  dropUnwritable(body);
  const markup = new XMLSerializer().serializeToString(body);
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><foreignObject width="100%" height="100%">${markup}</foreignObject></svg>`;
  return `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
}

/**
 * Removes characters that XML does not allow.
 * @param {HTMLElement} body
 */
function dropUnwritable(body) {
  const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const { data } = /** @type {Text} */ (node);
    const text = data.replace(NOT_XML, "\ufffd");
    if (text !== data) node.textContent = text;
  }
}

function stylesOfViews() {
  const rules = [];
  for (const sheet of document.styleSheets) {
    try {
      for (const rule of sheet.cssRules) if (/mars-|rv-|cv-/.test(rule.cssText)) rules.push(rule.cssText);
    } catch {
      continue; // a browser extension's style sheet
    }
  }
  return rules.join("\n");
}

/**
 * figures: [{title, spec}] with Plotly's data and layout, drawn one below the other with their titles.
 * @param {{ title: string, spec: Figure }[]} figures
 * @param {HTMLElement} root
 * @param {Plotly} plotly
 */
export async function chartsPng(figures, root, plotly) {
  const c = coloursOf(root);
  const { canvas, draw, scale } = canvasOf(CHART.width, figures.length * (CHART.height + CAPTION), c.surface);
  draw.textBaseline = "middle";
  for (const [i, { title, spec }] of figures.entries()) {
    const top = i * (CHART.height + CAPTION);
    const layout = { ...spec.layout, ...CHART, paper_bgcolor: c.surface, plot_bgcolor: c.surface };
    const url = await plotly.toImage({ data: spec.data, layout, config: {} }, { format: "png", ...CHART, scale });
    draw.fillStyle = c.ink;
    draw.font = `${14 * scale}px ${c.font}`;
    draw.fillText(title, 16 * scale, (top + CAPTION / 2) * scale);
    draw.drawImage(await loaded(url), 0, (top + CAPTION) * scale, CHART.width * scale, CHART.height * scale);
  }
  return blobOf(canvas);
}

/**
 * @param {number} width
 * @param {number} height
 * @param {string} background
 */
function canvasOf(width, height, background) {
  const scale = Math.min(2, MOST_SIDE / height, MOST_SIDE / width, Math.sqrt(MOST_PIXELS / (width * height)));
  const canvas = make("canvas");
  canvas.width = Math.floor(width * scale);
  canvas.height = Math.floor(height * scale);
  const draw = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  draw.fillStyle = background;
  draw.fillRect(0, 0, canvas.width, canvas.height);
  return { canvas, draw, scale };
}

/** @param {string} url */
async function loaded(url) {
  const picture = new Image();
  picture.src = url;
  await picture.decode();
  return picture;
}

/** @type {(canvas: HTMLCanvasElement) => Promise<Blob>} */
const blobOf = (canvas) =>
  new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png");
  });
