// Words for the document: make an element or a shape, find one, put text where it changed, find a place. Text only, never markup.

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string} [className]
 * @param {string} [text]
 * @returns {HTMLElementTagNameMap[K]}
 */
export const make = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};

/**
 * An element of SVG with its attributes.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {string} [className]
 * @param {Record<string, string | number>} [attributes]
 * @returns {SVGElementTagNameMap[K]}
 */
export function shape(tag, className, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  if (className) node.setAttribute("class", className);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  return node;
}

/**
 * The part of a view that its HTML has for sure.
 * @param {ParentNode} root
 * @param {string} selector
 * @returns {HTMLElement}
 */
export function find(root, selector) {
  const found = /** @type {HTMLElement | null} */ (root.querySelector(selector));
  if (!found) throw new Error(`Nothing here is ${selector}.`);
  return found;
}

/**
 * The element that something happened to.
 * @param {Event} event
 */
export const targetOf = (event) => /** @type {HTMLElement} */ (event.target);

/**
 * @param {Node} node
 * @param {string} text
 */
export const put = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

/**
 * Gives a field of the page a value, as typing would.
 * @param {HTMLInputElement | HTMLTextAreaElement | null} field
 * @param {string | number} value
 */
export function enter(field, value) {
  if (!field || field.value === String(value)) return;
  field.value = String(value);
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

const PAUSE = 100; // milliseconds until what is not on the page yet is looked for again

/**
 * Gradio builds its page late, and views mount themselves: this does something as soon as all that it is about is there.
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
 * Gives a list its nodes; those that stand where they should are not touched, so that nobody loses the focus.
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
 * How far a node stands below the top of what its scroller holds, in pixels.
 * @param {Element} scroller
 * @param {Element} node
 */
export function placeIn(scroller, node) {
  return (
    node.getBoundingClientRect().top - scroller.getBoundingClientRect().top - scroller.clientTop + scroller.scrollTop
  );
}

/**
 * The tab of the page that is called so.
 * @param {string} name
 */
export function tabOf(name) {
  const tabs = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[role=tab]"));
  return [...tabs].find((tab) => tab.textContent?.trim() === name);
}
