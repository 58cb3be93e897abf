// The browser's storage, which may be forbidden or full: then nothing is stored and the page still works.

/**
 * What is stored under a name; empty where nothing is.
 * @param {"localStorage" | "sessionStorage"} kind
 * @param {string} name
 */
export function stored(kind, name) {
  try {
    return window[kind].getItem(name) || "";
  } catch {
    return "";
  }
}

/**
 * @param {"localStorage" | "sessionStorage"} kind
 * @param {string} name
 * @param {string} value
 */
export function store(kind, name, value) {
  try {
    window[kind].setItem(name, value);
  } catch {
    // forbidden or full
  }
}

/**
 * What this tab stored before it was reloaded; empty for a page that was opened by its address.
 * @param {string} name
 */
export function storedBeforeReload(name) {
  const [arrival] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType("navigation"));
  return arrival?.type === "navigate" ? "" : stored("sessionStorage", name);
}
