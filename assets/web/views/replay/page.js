// The page that replays recorded runs. It contains its data and fetches nothing.

import { fitFrame, isDarkAround, watchAround } from "../../core/around.js";
import { find, put } from "../../core/dom.js";
import { store, stored } from "../../core/storage.js";
import { mountRaceView } from "../race/view.js";

const KEY = "mars-theme";

export function mountReplay() {
  const { title, value } = JSON.parse(document.getElementById("data")?.textContent || "{}");
  document.title = `${title} · MARS live`;
  put(find(document, "h1"), title);
  switchTheme(find(document, ".rp-theme"));
  mountRaceView(find(document, "main"), { value }, () => {});
  fitFrame();
}

/**
 * Mounts the button that switches between light and dark. Until the visitor presses the button, the theme follows the
 * page that embeds this one, or the system. The choice is stored.
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
