// Adapts this document to its surroundings: the notebook that embeds it in a frame or, without a frame, the system.
// Detects the dark theme, and fits the frame's height to the document.

const DARK = "(prefers-color-scheme: dark)";
const MOST_LUMINANCE = 128; // on a scale of 0 to 255; a colour with a higher luminance is light

/** Returns the frame element that contains this document; null if there is none or the browser forbids access to it. */
function frame() {
  try {
    return /** @type {HTMLElement | null} */ (window.frameElement);
  } catch {
    return null;
  }
}

/**
 * Returns whether a computed colour is light; null if it is not an rgb() colour.
 * @param {string} colour such as rgb(17, 17, 17)
 */
function isLight(colour) {
  const [red, green, blue] = (/^rgba?\(([^)]*)\)$/.exec(colour)?.[1] ?? "").split(/[\s,/]+/).map(Number);
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return Number.isNaN(luminance) ? null : luminance > MOST_LUMINANCE;
}

// Returns whether the page around this document is dark, judged by the colour of its text. For a document that is not
// embedded, returns whether the system's theme is dark.
export function isDarkAround() {
  const parent = frame()?.parentElement;
  return (parent && isLight(getComputedStyle(parent).color)) ?? window.matchMedia(DARK).matches;
}

/** Calls `changed` when the theme around this document may have changed. @param {() => void} changed */
export function watchAround(changed) {
  window.matchMedia(DARK).addEventListener("change", changed);
  const parent = frame()?.ownerDocument;
  if (!parent) return;
  const observer = new MutationObserver(changed);
  for (const node of [parent.documentElement, parent.body]) observer.observe(node, { attributes: true });
}

// Fits a notebook's frame to the height of its content and hides the fallback text for notebooks that show no frames.
export function fitFrame() {
  const holder = frame();
  const text = /** @type {HTMLElement | null | undefined} */ (holder?.previousElementSibling);
  if (!holder || !text?.hasAttribute("data-mars-text")) return;
  text.style.display = "none";
  const fit = () => (holder.style.height = `${document.documentElement.offsetHeight}px`);
  new ResizeObserver(fit).observe(document.documentElement);
  fit();
}
