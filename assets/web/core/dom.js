// Words for the document: make an element or a shape, find one, put text where it changed, find a place, follow the keys.
// Text only, never markup.

/**
 * An element: its class, or its attributes with the class among them; then what is in it.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string | Attributes} [given]
 * @param {(string | Node)[]} content
 * @returns {HTMLElementTagNameMap[K]}
 */
export const make = (tag, given = "", ...content) => filled(document.createElement(tag), given, content);

/**
 * The same of SVG.
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
 * Writes what is not so already: who watches a node hears of changes alone.
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
 * A button that does something when it is pressed.
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
 * A button that stays pressed until it is pressed again.
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
 * Something that takes the keyboard as one: the arrow keys move inside of it.
 * @param {string} className
 * @param {string} label
 * @param {(string | Node)[]} content
 */
export const group = (className, label, ...content) =>
  make("div", { class: className, tabindex: 0, role: "group", "aria-label": label }, ...content);

/** @param {KeyboardEvent} event */
export const isModified = (event) => event.ctrlKey || event.metaKey || event.altKey;

/**
 * The place among 0 to `last` that a key leads to, null for a key that leads nowhere. `places`: by key, kept inside.
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

/** @type {(node: Node, text: string) => void} */
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
 * Colours change with the theme: a view hears of it as long as it stands in the page.
 * @param {Element} root
 * @param {() => void} changed
 */
export function watchTheme(root, changed) {
  const observer = new MutationObserver(() => (root.isConnected ? changed() : observer.disconnect()));
  for (const node of [document.body, document.documentElement])
    observer.observe(node, { attributes: true, attributeFilter: ["class"] });
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
 * The tab of the page that is called so; on a narrow page some stand in a list behind the others.
 * @param {string} name
 */
export function tabOf(name) {
  const tabs = /** @type {NodeListOf<HTMLElement>} */ (
    document.querySelectorAll("[role=tab], .overflow-dropdown button")
  );
  return [...tabs].find((tab) => tab.textContent?.trim() === name);
}

export const NO_COPY = "This browser lets nothing be copied: allow it for this page and try again.";

/**
 * Where the clipboard is closed (a page without https), the old way through a selection.
 * @param {string} text
 */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = make("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const isDone = document.execCommand("copy");
    field.remove();
    return isDone;
  }
}

/**
 * Whether a node is on the screen, told now and whenever that changes.
 * @param {Element} node
 * @param {(isInSight: boolean) => void} tell
 */
export function watchSight(node, tell) {
  // The last word counts, where several came together.
  new IntersectionObserver((entries) => tell(Boolean(entries.at(-1)?.isIntersecting))).observe(node);
}
