// Tabs have addresses such as #throughput. Gradio renders a tab when it is first opened.

import { indexForKey, targetOf, whenThere } from "./dom.js";

const TABS = ["live", "trade-off", "throughput", "review"];
const [FIRST] = TABS;
/** @type {Record<string, string>} */
const FOLDS = { "how-it-works": FIRST }; // the tab of each fold that has an address

const buttonOf = (/** @type {string} */ name) => document.getElementById(`${name}-tab-button`);

/**
 * Returns the view for an address: the name of a tab or fold, or a section of How it works. null for any other address.
 * @param {string} hash
 */
function knownView(hash) {
  const [name] = hash.slice(1).split("=");
  if (hash.includes("=")) return null;
  if (name.startsWith("ex-")) return "how-it-works";
  return TABS.includes(name) || FOLDS[name] ? name : null;
}

/** @param {string} hash */
export const hasView = (hash) => knownView(hash) !== null;

/** Returns the view for an address, or the first view. @param {string} hash */
export const viewAt = (hash) => knownView(hash) ?? FIRST;

let isOpening = false; // whether this module, not the visitor, is clicking a tab

/** @param {HTMLElement} button */
function press(button) {
  if (button.getAttribute("aria-selected") === "true") return;
  isOpening = true;
  button.click();
  isOpening = false;
}

/** @param {string} name */
function openFold(name) {
  const query = () => /** @type {HTMLElement | null} */ (document.querySelector(`#${name} > button`));
  whenThere(query, (opener) => {
    if (!opener.classList.contains("open")) opener.click();
    opener.scrollIntoView();
  });
}

/** Opens a tab, or a fold and its tab. @param {string} view */
export function openView(view) {
  addToHistory(view);
  whenThere(
    () => buttonOf(FOLDS[view] ?? view),
    (tab) => {
      press(tab);
      if (FOLDS[view]) openFold(view);
      delete document.documentElement.dataset.opening;
    },
  );
}

/** Adds a view to the browser's history, unless it is already the view of the current address. @param {string} view */
function addToHistory(view) {
  if (viewAt(location.hash) !== view) history.pushState(null, "", `${location.pathname}${location.search}#${view}`);
}

/** @param {MouseEvent} event */
function clicked({ target }) {
  const button = target instanceof Element && target.closest("[role=tab]");
  const name = button && button.id.replace(/-tab-button$/, "");
  if (!name || button.id === name) return;
  if (!isOpening) addToHistory(name);
}

// Makes the list of tabs a single tab stop, in which arrow keys move between the tabs.
/** @param {Element} list */
function makeOneTabStop(list) {
  const update = () => {
    for (const tab of tabsOf(list)) tab.tabIndex = tab.getAttribute("aria-selected") === "true" ? 0 : -1;
  };
  update();
  new MutationObserver(update).observe(list, { subtree: true, childList: true, attributeFilter: ["aria-selected"] });
  list.addEventListener("keydown", (event) => move(list, /** @type {KeyboardEvent} */ (event)));
}

const tabsOf = (/** @type {Element} */ list) => /** @type {HTMLElement[]} */ ([...list.querySelectorAll("[role=tab]")]);

/** @param {Element} list @param {KeyboardEvent} event */
function move(list, event) {
  const all = tabsOf(list);
  const at = all.indexOf(targetOf(event));
  if (at < 0) return;
  const last = all.length - 1;
  const next = indexForKey(event, { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }, last);
  if (next === null) return;
  all[next].focus();
  all[next].click();
}

// Opens the view of the page's address, now and after the browser's Back and Forward.
export function mountTabs() {
  document.addEventListener("click", clicked);
  addEventListener("popstate", () => openView(viewAt(location.hash)));
  whenThere(() => buttonOf(FIRST)?.parentElement, makeOneTabStop);
  if (!location.hash) return;
  document.documentElement.dataset.opening = viewAt(location.hash); // hides the first tab until this one is open
  openView(viewAt(location.hash));
}
