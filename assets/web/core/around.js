// The page around this document: the notebook that embeds it, otherwise the system. Its theme, and the height that it
// gives this document.

const DARK = "(prefers-color-scheme: dark)";
const MOST_LUMINANCE = 128; // of text on a light background, from 0 to 255

/** Returns the element that holds this document; null if there is none or it may not be read. */
function frame() {
  try {
    return /** @type {HTMLElement | null} */ (window.frameElement);
  } catch {
    return null;
  }
}

/**
 * Whether a computed colour is light; null if it is not understood.
 * @param {string} colour such as rgb(17, 17, 17)
 */
export function isLight(colour) {
  const [red, green, blue] = (/^rgba?\(([^)]*)\)$/.exec(colour)?.[1] ?? "").split(/[\s,/]+/).map(Number);
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return Number.isNaN(luminance) ? null : luminance > MOST_LUMINANCE;
}

// Returns whether the text around this document is light, as on a dark background; for a document that is not embedded,
// whether the system's theme is dark.
export function isDarkAround() {
  const parent = frame()?.parentElement;
  return (parent && isLight(getComputedStyle(parent).color)) ?? window.matchMedia(DARK).matches;
}

/**
 * Reports a change of the theme around this document.
 * @param {() => void} changed
 */
export function watchAround(changed) {
  window.matchMedia(DARK).addEventListener("change", changed);
  const parent = frame()?.ownerDocument;
  if (!parent) return;
  const observer = new MutationObserver(changed);
  for (const node of [parent.documentElement, parent.body]) observer.observe(node, { attributes: true });
}

// Fits a notebook's frame to the height of its content, and hides the text that replaces it where frames are not shown.
export function fitFrame() {
  const holder = frame();
  const text = /** @type {HTMLElement | null | undefined} */ (holder?.previousElementSibling);
  if (!holder || !text?.hasAttribute("data-mars-text")) return;
  text.style.display = "none";
  const fit = () => (holder.style.height = `${document.documentElement.offsetHeight}px`);
  new ResizeObserver(fit).observe(document.documentElement);
  fit();
}
