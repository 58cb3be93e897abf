// The browser's storage. If it is forbidden or full, nothing is stored and the page still works.

/**
 * Returns the value stored under a name; empty if there is none.
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
 * Returns what this tab stored before its reload; empty for a page that was opened by its address.
 * @param {string} name
 */
export function storedBeforeReload(name) {
  const [arrival] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType("navigation"));
  return arrival?.type === "navigate" ? "" : stored("sessionStorage", name);
}
