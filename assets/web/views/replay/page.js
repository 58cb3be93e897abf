// A page of its own around one race view: its data stand in the document, nothing is fetched.

import { find, put } from "../../core/dom.js";
import { mountRaceView } from "../race/view.js";

// What the document carries as JSON.
export const pageData = () => JSON.parse(document.getElementById("data")?.textContent || "{}");

export function mountReplay() {
  const { title, why, value, isListed } = pageData();
  frame(title, isListed);
  show(find(document, ".rp-why"), why);
  return mountRaceView(find(document, ".rp-main"), { value }, () => {});
}

/**
 * What every page has: its title, the way back to the list, the theme.
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
 * Light or dark as the system is, until somebody chooses; then as chosen, here and on the next page.
 * @param {HTMLElement} button
 */
function switchTheme(button) {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const draw = () => {
    const isDark = (remembered() || (system.matches ? "dark" : "light")) === "dark";
    root.classList.toggle("dark", isDark);
    put(button, isDark ? "Light" : "Dark");
    button.setAttribute("aria-label", isDark ? "Show in light colours" : "Show in dark colours");
  };
  let chosen = "";
  const remembered = () => chosen || read();
  button.addEventListener("click", () => {
    chosen = root.classList.contains("dark") ? "light" : "dark";
    write(chosen);
    draw();
  });
  system.addEventListener("change", draw);
  draw();
}

const KEY = "mars-theme";

// A page that came from a disk may have no storage.
function read() {
  try {
    return window.localStorage.getItem(KEY) || "";
  } catch {
    return "";
  }
}

/** @param {string} theme */
function write(theme) {
  try {
    window.localStorage.setItem(KEY, theme);
  } catch {
    // the choice then ends with this page
  }
}
