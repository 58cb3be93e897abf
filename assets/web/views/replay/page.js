// Pages of a replay site, which contain their data and fetch nothing: the page of one recording with a race view, and
// the list of all recordings with their figures.

import { fitFrame, isDarkAround, watchAround } from "../../core/around.js";
import { find, make, put } from "../../core/dom.js";
import { store, stored } from "../../core/storage.js";
import { counted, figure } from "../../core/words.js";
import { settingsText } from "../../text/card.js";
import { mountRaceView } from "../race/view.js";
import { bars, pageData } from "./parts.js";

export function mountReplay() {
  const { title, why, value, isListed } = pageData();
  frame(title, isListed);
  show(find(document, ".rp-why"), why);
  mountRaceView(find(document, ".rp-main"), { value }, () => {});
  fitFrame();
}

/**
 * Mounts what every page has: its title, the link back to the list, and the button for the theme.
 * @param {string} title
 * @param {boolean} isListed
 */
export function frame(title, isListed) {
  document.title = `${title} · MARS live`;
  put(find(document, "h1"), title);
  find(document, ".rp-back").hidden = !isListed;
  switchTheme(find(document, ".rp-theme"));
}

/**
 * @param {HTMLElement} element
 * @param {string | undefined} text
 */
function show(element, text) {
  element.hidden = !text;
  put(element, text || "");
}

/**
 * Mounts the button that switches between light and dark. Until the visitor presses the button, the theme follows the
 * page that embeds this one, or the system. The choice is stored and also applies to the other pages.
 * @param {HTMLElement} button
 */
function switchTheme(button) {
  const root = document.documentElement;
  const draw = () => {
    const isDark = (remembered() || (isDarkAround() ? "dark" : "light")) === "dark";
    root.classList.toggle("dark", isDark);
    put(button, isDark ? "Light" : "Dark");
    button.setAttribute("aria-label", isDark ? "Switch to the light theme" : "Switch to the dark theme");
  };
  let chosen = "";
  const remembered = () => chosen || stored("localStorage", KEY);
  button.addEventListener("click", () => {
    chosen = root.classList.contains("dark") ? "light" : "dark";
    store("localStorage", KEY, chosen);
    draw();
  });
  watchAround(draw);
  draw();
}

const KEY = "mars-theme";

export function mountSite() {
  /** @type {{ title: string, recordings: ListedRun[] }} */
  const { title, recordings } = pageData();
  frame(title, false);
  const kinds = new Set(recordings.map((recording) => recording.circumstances));
  const isCommon = kinds.size === 1; // all recordings have the same circumstances, which are shown once
  if (isCommon) find(document, ".rp-on").textContent = [...kinds][0];
  find(document, ".rp-list").append(...recordings.map((recording) => item(recording, isCommon)));
}

/**
 * @param {ListedRun} recording
 * @param {boolean} isCommon
 */
function item(recording, isCommon) {
  const link = make("a", { href: recording.address }, recording.title);
  const circumstances = isCommon ? [] : [make("p", "rp-facts", recording.circumstances)];
  return make("li", "", link, make("p", "", recording.why), bars(recording.counts), facts(recording), ...circumstances);
}

/** @param {ListedRun} given */
function facts({ settings, tpf, speedup, against, num_tokens: numTokens }) {
  const faster = speedup ? [" · ", make("b", "", `${figure(speedup)}×`), ` the speed of ${against}`] : [];
  const details = ` · ${settingsText(settings)} · ${counted(numTokens, "token")}`;
  return make("p", "rp-facts", make("b", "", `${figure(tpf)} tokens per pass`), ...faster, details);
}
