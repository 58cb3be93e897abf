// Helpers for the document: create an element or a shape, find one, change its text, find a position, handle keys. Text
// only, never markup.

/**
 * Creates an element from its class, or from attributes including the class, and its children.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string | Attributes} [given]
 * @param {(string | Node)[]} content
 * @returns {HTMLElementTagNameMap[K]}
 */
export const make = (tag, given = "", ...content) => filled(document.createElement(tag), given, content);

/**
 * Creates an SVG element in the same way.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {string | Attributes} [given]
 * @param {(string | Node)[]} content
 * @returns {SVGElementTagNameMap[K]}
 */
export const shape = (tag, given = "", ...content) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), given, content);

/**
 * @template {Element} E
 * @param {E} node
 * @param {string | Attributes} given
 * @param {(string | Node)[]} content
 */
function filled(node, given, content) {
  if (typeof given !== "string") attribute(node, given);
  else if (given) node.setAttribute("class", given);
  node.append(...content);
  return node;
}

/**
 * Sets only attributes that differ, so that mutation observers see changes only.
 * @param {Element} node
 * @param {Attributes} attributes
 */
export function attribute(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    const text = String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

/**
 * Creates a button that runs an action.
 * @param {string | Attributes} given
 * @param {string | Node[]} content
 * @param {(event: MouseEvent) => void} act
 */
export function button(given, content, act) {
  const node = make("button", given, ...[content].flat());
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

/**
 * Creates a button that stays pressed until it is pressed again.
 * @param {string} text
 * @param {boolean} isOn
 * @param {(isOn: boolean) => void} act
 */
export function toggle(text, isOn, act) {
  const node = button({ "aria-pressed": isOn }, text, () => {
    const isNow = node.getAttribute("aria-pressed") !== "true";
    attribute(node, { "aria-pressed": isNow });
    act(isNow);
  });
  return node;
}

/**
 * Makes a group of elements one tab stop; arrow keys move inside it.
 * @param {string} className
 * @param {string} label
 * @param {(string | Node)[]} content
 */
export const group = (className, label, ...content) =>
  make("div", { class: className, tabindex: 0, role: "group", "aria-label": label }, ...content);

/** @param {KeyboardEvent} event */
export const isModified = (event) => event.ctrlKey || event.metaKey || event.altKey;

/**
 * Returns the index, 0 to `last`, to which a key moves; null for other keys. places: index by key; it is clamped.
 * @param {KeyboardEvent} event
 * @param {Record<string, number>} places
 * @param {number} last
 */
export function ledTo(event, places, last) {
  if (last < 0 || !(event.key in places)) return null;
  event.preventDefault();
  return Math.max(0, Math.min(last, places[event.key]));
}

/**
 * Finds a part of a view that its HTML always has.
 * @param {ParentNode} root
 * @param {string} selector
 * @returns {HTMLElement}
 */
export function find(root, selector) {
  const found = /** @type {HTMLElement | null} */ (root.querySelector(selector));
  if (!found) throw new Error(`There is no element ${selector}.`);
  return found;
}

/**
 * Returns the element of an event.
 * @param {Event} event
 */
export const targetOf = (event) => /** @type {HTMLElement} */ (event.target);

/** @type {(node: Node, text: string) => void} */
export const put = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

const PAUSE = 100; // milliseconds between two checks for an element that does not exist yet

/**
 * Runs an action as soon as what it needs exists: Gradio builds its page late, and views mount themselves.
 * @template T
 * @param {() => T | null | undefined} look
 * @param {(found: T) => void} act
 */
export function whenThere(look, act) {
  const found = look();
  if (found) act(found);
  else setTimeout(() => whenThere(look, act), PAUSE);
}

/**
 * Sets the children of a list without moving those that are in place, so that the focus is not lost.
 * @param {Element} list
 * @param {Element[]} nodes
 */
export function fill(list, nodes) {
  nodes.forEach((node, i) => {
    if (list.children[i] !== node) list.insertBefore(node, list.children[i] || null);
  });
  while (list.children.length > nodes.length) list.lastElementChild?.remove();
}

/**
 * Calls back when the theme changes, while the view is in the page.
 * @param {Element} root
 * @param {() => void} changed
 */
export function watchTheme(root, changed) {
  const observer = new MutationObserver(() => (root.isConnected ? changed() : observer.disconnect()));
  for (const node of [document.body, document.documentElement])
    observer.observe(node, { attributes: true, attributeFilter: ["class"] });
}

/**
 * Returns the distance in pixels of a node from the top of its scroller's content.
 * @param {Element} scroller
 * @param {Element} node
 */
export function placeIn(scroller, node) {
  return (
    node.getBoundingClientRect().top - scroller.getBoundingClientRect().top - scroller.clientTop + scroller.scrollTop
  );
}

export const NO_COPY = "This browser blocked copying. Allow it for this page and try again.";

/**
 * Copies by a selection if the clipboard is not available (a page without https). The field for it is next to the focus,
 * so that an open menu or dialog does not lose it.
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
 * Reports whether a node is visible, or nearer to the window than a margin in pixels, now and at every change.
 * @param {Element} node
 * @param {(isInSight: boolean) => void} tell
 * @param {number} [margin]
 */
export function watchSight(node, tell, margin = 0) {
  const look = { rootMargin: `${margin}px 0px` };
  // The last entry is the current state.
  new IntersectionObserver((entries) => tell(Boolean(entries.at(-1)?.isIntersecting)), look).observe(node);
}
