// Helpers for the document. Strings are always inserted as text, never as markup.

/**
 * @template {keyof HTMLElementTagNameMap} K @param {K} tag @param {string | Attributes} [given]
 * @param {(string | Node)[]} content @returns {HTMLElementTagNameMap[K]}
 */
export const make = (tag, given = "", ...content) => filled(document.createElement(tag), given, content);

/**
 * @template {keyof SVGElementTagNameMap} K @param {K} tag @param {string | Attributes} [given]
 * @param {(string | Node)[]} content @returns {SVGElementTagNameMap[K]}
 */
export const shape = (tag, given = "", ...content) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), given, content);

/** @template {Element} E @param {E} node @param {string | Attributes} given @param {(string | Node)[]} content */
function filled(node, given, content) {
  if (typeof given !== "string") attribute(node, given);
  else if (given) node.setAttribute("class", given);
  node.append(...content);
  return node;
}

/**
 * Sets only the attributes with a new value, because setting an unchanged attribute would also trigger mutation
 * observers.
 * @param {Element} node @param {Attributes} attributes
 */
export function attribute(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    const text = String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

/** @param {string | Attributes} given @param {string | Node[]} content @param {(event: MouseEvent) => void} act */
export function button(given, content, act) {
  const node = make("button", given, ...[content].flat());
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

/** @param {string} text @param {boolean} isOn @param {(isOn: boolean) => void} act */
export function toggle(text, isOn, act) {
  const node = button({ "aria-pressed": isOn }, text, () => {
    const isNow = node.getAttribute("aria-pressed") !== "true";
    attribute(node, { "aria-pressed": isNow });
    act(isNow);
  });
  return node;
}

/**
 * Creates a group that is a single tab stop; the caller handles the arrow keys inside it.
 * @param {string} className @param {string} label @param {(string | Node)[]} content
 */
export const group = (className, label, ...content) =>
  make("div", { class: className, tabindex: 0, role: "group", "aria-label": label }, ...content);

/** @param {KeyboardEvent} event */
export const isModified = (event) => event.ctrlKey || event.metaKey || event.altKey;

/**
 * Returns the index to which a key moves in a list, null for other keys. targets: the index for each key, clamped to 0
 * to `last`. Prevents the browser's default action for the keys in `targets`.
 * @param {KeyboardEvent} event @param {Record<string, number>} targets @param {number} last
 */
export function indexForKey(event, targets, last) {
  if (last < 0 || !(event.key in targets)) return null;
  event.preventDefault();
  return Math.max(0, Math.min(last, targets[event.key]));
}

/** @param {ParentNode} root @param {string} selector */
export function find(root, selector) {
  const element = /** @type {HTMLElement | null} */ (root.querySelector(selector));
  if (!element) throw new Error(`There is no element ${selector}.`);
  return element;
}

/** @param {Event} event */
export const targetOf = (event) => /** @type {HTMLElement} */ (event.target);

/** @type {(node: Node, text: string) => void} */
export const put = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

const PAUSE = 100; // milliseconds between two checks for an element that does not exist yet

/**
 * Calls `query` repeatedly until its result is truthy, then calls `act` with this result. Used for elements that Gradio
 * or a view adds to the page late.
 * @template T @param {() => T | null | undefined} query @param {(result: T) => void} act
 */
export function whenThere(query, act) {
  const result = query();
  if (result) act(result);
  else setTimeout(() => whenThere(query, act), PAUSE);
}

/**
 * Sets the children of a list. Children that are already at the right index are not moved, so that they keep the focus.
 * @param {Element} list @param {Element[]} nodes
 */
export function fill(list, nodes) {
  nodes.forEach((node, i) => {
    if (list.children[i] !== node) list.insertBefore(node, list.children[i] || null);
  });
  while (list.children.length > nodes.length) list.lastElementChild?.remove();
}

/**
 * Calls `changed` when the theme changes, as long as the view is in the page.
 * @param {Element} root @param {() => void} changed
 */
export function watchTheme(root, changed) {
  const observer = new MutationObserver(() => (root.isConnected ? changed() : observer.disconnect()));
  for (const node of [document.body, document.documentElement])
    observer.observe(node, { attributes: true, attributeFilter: ["class"] });
}

/** @param {Element} scroller @param {Element} node */
export function placeIn(scroller, node) {
  return (
    node.getBoundingClientRect().top - scroller.getBoundingClientRect().top - scroller.clientTop + scroller.scrollTop
  );
}

export const NO_COPY = "This browser blocked copying. Allow it for this page and try again.";

/**
 * Copies a text to the clipboard and returns whether that worked. If the clipboard API is not available (a page without
 * https), copies from a selected text field. The field is inserted in the open menu or dialog, which would close if it
 * lost the focus.
 * @param {string} text
 */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = make("textarea", { style: "position: fixed; opacity: 0" });
    field.value = text;
    (document.activeElement?.closest("details, dialog") ?? document.body).append(field);
    field.select();
    const isDone = document.execCommand("copy");
    field.remove();
    return isDone;
  }
}

/**
 * Calls `changed`, at the start and at every change, with whether a node is at most `margin` pixels above or below the
 * visible part of the page.
 * @param {Element} node @param {(isInSight: boolean) => void} changed @param {number} [margin]
 */
export function watchSight(node, changed, margin = 0) {
  const options = { rootMargin: `${margin}px 0px` };
  // The last entry describes the current state.
  new IntersectionObserver((entries) => changed(Boolean(entries.at(-1)?.isIntersecting)), options).observe(node);
}

export const promptBox = () => /** @type {HTMLTextAreaElement | null} */ (document.querySelector("#prompt textarea"));

/** @param {string} className of the sample @param {string} text @param {string} [sample] */
export const legendItem = (className, text, sample = "text") =>
  make("span", "", make("span", className, sample), ` ${text}`);
