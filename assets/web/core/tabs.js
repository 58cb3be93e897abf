// The page's tabs, their addresses (#frontier), and how a script opens one. A tab with several views has a list of tabs
// of its own; the address of its first view is the tab's. Gradio renders a view when it is first opened.

import { ledTo, targetOf, whenThere } from "./dom.js";

/** @type {Record<string, string[]>} */
const VIEWS = {
  "trade-off": ["grid", "frontier"],
  throughput: ["batch", "load"],
  review: ["compare", "sets", "stability"],
};
const SINGLE = ["live", "how-it-works"];
const [FIRST] = SINGLE;

const buttonOf = (/** @type {string} */ name) => document.getElementById(`${name}-tab-button`);

const isOpen = (/** @type {string} */ name) => buttonOf(name)?.getAttribute("aria-selected") === "true";

const parentOf = (/** @type {string} */ view) => Object.keys(VIEWS).find((name) => VIEWS[name].includes(view));

// Whether the page has this tab; an exported page has none.
export const hasTab = (/** @type {string} */ name) => Boolean(buttonOf(parentOf(name) ?? name));

/**
 * Returns the view at an address: its own name, its tab's, or the name of a link's content.
 * @param {string} hash
 */
export function viewAt(hash) {
  const [name] = hash.slice(1).split("=");
  if (hash.includes("=")) return name === "review" ? "sets" : FIRST;
  if (VIEWS[name]) return VIEWS[name][0];
  return SINGLE.includes(name) || parentOf(name) ? name : FIRST;
}

/** @param {string} view */
const addressOf = (view) => {
  const parent = parentOf(view);
  return `#${parent && VIEWS[parent][0] === view ? parent : view}`;
};

let isOpening = false; // the clicks are this module's

/** @param {HTMLElement} button */
function press(button) {
  if (button.getAttribute("aria-selected") === "true") return;
  isOpening = true;
  button.click();
  isOpening = false;
}

/**
 * Opens a view, and its tab before it.
 * @param {string} view
 */
export function openView(view) {
  const parent = parentOf(view);
  note(view);
  whenThere(
    () => buttonOf(parent ?? view),
    (tab) => {
      press(tab);
      if (parent) whenThere(() => buttonOf(view), press);
      delete document.documentElement.dataset.opening;
    },
  );
}

/**
 * Adds a view to the browser's history, unless the address is its own already.
 * @param {string} view
 */
function note(view) {
  if (viewAt(location.hash) !== view) history.pushState(null, "", addressOf(view));
}

/** @param {MouseEvent} event */
function clicked({ target }) {
  const button = target instanceof Element && target.closest("[role=tab]");
  const name = button && button.id.replace(/-tab-button$/, "");
  if (!name || button.id === name) return;
  const views = VIEWS[name];
  if (views) whenThere(() => buttonOf(views[0])?.parentElement, standOnce);
  if (!isOpening) note(views ? (views.find(isOpen) ?? views[0]) : name);
}

/** @type {WeakSet<Element>} */
const watched = new WeakSet();

// A list of tabs is one tab stop: arrow keys move between its tabs.
/** @param {Element} list */
function standOnce(list) {
  if (watched.has(list)) return;
  watched.add(list);
  const stand = () => {
    for (const tab of tabsOf(list)) tab.tabIndex = tab.getAttribute("aria-selected") === "true" ? 0 : -1;
  };
  stand();
  new MutationObserver(stand).observe(list, { subtree: true, childList: true, attributeFilter: ["aria-selected"] });
  list.addEventListener("keydown", (event) => move(list, /** @type {KeyboardEvent} */ (event)));
}

const tabsOf = (/** @type {Element} */ list) => /** @type {HTMLElement[]} */ ([...list.querySelectorAll("[role=tab]")]);

/**
 * @param {Element} list
 * @param {KeyboardEvent} event
 */
function move(list, event) {
  const all = tabsOf(list);
  const at = all.indexOf(targetOf(event));
  if (at < 0) return;
  const last = all.length - 1;
  const place = ledTo(event, { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }, last);
  if (place === null) return;
  all[place].focus();
  all[place].click();
}

// Opens the view of the page's address, and follows Back and Forward.
export function mountTabs() {
  document.addEventListener("click", clicked);
  addEventListener("popstate", () => openView(viewAt(location.hash)));
  whenThere(() => buttonOf(FIRST)?.parentElement, standOnce);
  if (!location.hash) return;
  document.documentElement.dataset.opening = viewAt(location.hash); // hides the first tab until this one is open
  openView(viewAt(location.hash));
}
