// Draws pictures of a view's content in the browser, in the page's theme: texts as an SVG that contains the elements
// and their styles, charts by Plotly. Nothing is fetched.

import { coloursOf } from "../core/colours.js";
import { make, put, shape } from "../core/dom.js";
import { blobOf, canvasOf, loaded } from "../core/pictures.js";
import { environment, joined, minuteOf } from "../core/words.js";
import { Asked, onceText } from "../text/asked.js";
import { laneText } from "../text/card.js";
import { Pane } from "../text/panes.js";

const WIDTH = 880; // width of a text in pixels
const CHART = { width: 880, height: 260 };
const CAPTION = 28;
const ABOUT = 20; // height in pixels of a line about the run
const MOST_ABOUT = 150; // maximum characters of a line about the run
const WHOLE =
  ".rv-prompt { max-height: none !important; } .rv-text { height: auto !important; overflow: visible !important; contain: none !important; }";
const NOT_XML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu; // including unpaired surrogates

/**
 * Creates a pane with a lane's text for a picture. comparison: comparison with another lane's text, which is marked.
 * @param {Lane} lane
 * @param {string} title
 * @param {Compared | null} [comparison]
 */
export function paneOf(lane, title, comparison = null) {
  const pane = new Pane(lane, false, { token() {}, choose() {}, leave() {} });
  pane.rendered.button.remove();
  pane.draw(lane);
  if (title !== lane.title) put(pane.title, title);
  if (comparison) pane.compared(comparison);
  return pane;
}

/**
 * Returns a picture of a lane's text, with its prompt above and its environment below.
 * @param {Lane} lane
 * @param {string} title
 * @param {HTMLElement} root
 * @param {Compared | null} [comparison]
 */
export function textPng(lane, title, root, comparison = null) {
  const { element } = paneOf(lane, title, comparison);
  const asked = new Asked(make("div", "rv-asked"));
  asked.drawRun([lane], null);
  const foot = joined(environment(lane.header), minuteOf(lane.header));
  return elementPng([asked.element, element, make("p", "rv-env", foot)], root, WIDTH);
}

/**
 * Returns a PNG of elements, laid out at a width in pixels with the styles of the view `root`.
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
      continue; // the style sheet of a browser extension cannot be read
    }
  }
  return rules.join("\n");
}

/**
 * Returns the lines about a run above its charts: the prompt, each lane's settings, and the hardware and versions.
 * @param {Lane[]} lanes
 */
export function aboutLines(lanes) {
  const { header } = lanes[0];
  const settings = lanes.map((lane) => `${lane.title}: ${laneText(lane)}`);
  const limits = header?.settings && onceText(header.settings);
  const prompts = new Set(lanes.map((lane) => `“${lane.header?.prompt ?? ""}”`));
  return [[...prompts].join(" · "), joined(settings.join("; "), limits), joined(environment(header), minuteOf(header))];
}

/**
 * Lays out a picture: returns its lines and charts with their distances from the top, and its height, in pixels.
 * @param {{ title: string, spec: Figure }[]} figures
 * @param {Colours} c
 * @param {string[]} about
 */
function laidOut(figures, c, about) {
  const top = about.length ? about.length * ABOUT + CAPTION / 2 : 0;
  const cut = (/** @type {string} */ text) => (text.length > MOST_ABOUT ? `${text.slice(0, MOST_ABOUT)}…` : text);
  const lines = about.map((text, i) => ({ text: cut(text.replace(/\s+/g, " ")), at: (i + 1) * ABOUT, size: 11 }));
  const charts = figures.map(({ title, spec }, i) => {
    const at = top + i * (CHART.height + CAPTION);
    lines.push({ text: title, at: at + CAPTION / 2, size: 14 });
    const layout = { ...spec.layout, ...CHART, paper_bgcolor: c.surface, plot_bgcolor: c.surface };
    return { at: at + CAPTION, picture: { data: spec.data, layout, config: {} } };
  });
  return { lines, charts, height: top + figures.length * (CHART.height + CAPTION) };
}

/**
 * Returns a PNG with lines about the run (`about`) and, below them, the charts with their titles.
 * @param {{ title: string, spec: Figure }[]} figures Plotly's data and layout
 * @param {HTMLElement} root
 * @param {Plotly} plotly
 * @param {string[]} [about]
 */
export async function chartsPng(figures, root, plotly, about = []) {
  const c = coloursOf(root);
  const { lines, charts, height } = laidOut(figures, c, about);
  const { canvas, draw, scale } = canvasOf(CHART.width, height, c.surface);
  draw.textBaseline = "middle";
  draw.fillStyle = c.ink;
  for (const { text, at, size } of lines) {
    draw.font = `${size * scale}px ${c.font}`;
    draw.fillText(text, 16 * scale, at * scale, (CHART.width - 32) * scale);
  }
  for (const { at, picture } of charts) {
    const url = await plotly.toImage(picture, { format: "png", ...CHART, scale });
    draw.drawImage(await loaded(url), 0, at * scale, CHART.width * scale, CHART.height * scale);
  }
  return blobOf(canvas);
}

/**
 * Returns the picture of chartsPng as an SVG file.
 * @type {typeof chartsPng}
 */
export async function chartsSvg(figures, root, plotly, about = []) {
  const c = coloursOf(root);
  const { lines, charts, height } = laidOut(figures, c, about);
  const { width } = CHART;
  const size = { width, height, viewBox: `0 0 ${width} ${height}` };
  const picture = shape("svg", size, shape("rect", { width, height, fill: c.surface }));
  for (const { text, at, size: pixels } of lines) {
    const style = { fill: c.ink, "font-family": c.font, "font-size": pixels, "dominant-baseline": "middle" };
    picture.append(shape("text", { x: 16, y: at, ...style }, text));
  }
  for (const { at, picture: chart } of charts) {
    const url = await plotly.toImage(chart, { format: "svg", ...CHART });
    const text = decodeURIComponent(url.slice(url.indexOf(",") + 1));
    const drawn = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    drawn.setAttribute("y", String(at));
    picture.append(drawn);
  }
  return new Blob([new XMLSerializer().serializeToString(picture)], { type: "image/svg+xml" });
}
