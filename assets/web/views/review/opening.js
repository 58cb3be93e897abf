// Loads the script and style sheet of the Review tab when the tab is first visible.

import { find, make, put } from "../../core/dom.js";

const FAILED = "This tab could not be loaded. Check that the server is running, then reload the page.";

/**
 * Waits until the tab is visible, then loads it; called by the component's js_on_load.
 * @param {HTMLElement} element
 */
export function mountReviewTab(element) {
  const root = find(element, ".mars-review");
  const observer = new ResizeObserver(() => {
    if (!root.clientWidth) return;
    observer.disconnect();
    load(root);
  });
  observer.observe(root);
}

/** @param {HTMLElement} root */
async function load(root) {
  const style = make("link", { rel: "stylesheet", href: root.dataset.style || "" });
  const script = make("script", { src: root.dataset.script || "" });
  const loaded = [style, script].map(
    (node) =>
      new Promise((resolve, reject) => {
        node.onload = resolve;
        node.onerror = reject;
      }),
  );
  document.head.append(style, script);
  try {
    await Promise.all(loaded);
    /** @type {(root: HTMLElement) => void} */ (window.mars.mountReview)(root);
  } catch {
    root.dataset.phase = "error";
    put(find(root, ".rw-status"), FAILED);
  }
}
