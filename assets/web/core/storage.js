/**
 * Returns the value stored under a name; empty if there is none.
 * @param {"localStorage" | "sessionStorage"} kind @param {string} name
 */
export function stored(kind, name) {
  try {
    return window[kind].getItem(name) || "";
  } catch {
    return "";
  }
}

/**
 * Stores a value. Returns false if storage is forbidden or full.
 * @param {"localStorage" | "sessionStorage"} kind @param {string} name @param {string} value
 */
export function store(kind, name, value) {
  try {
    window[kind].setItem(name, value);
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns the value that this browser tab stored before the page was reloaded or opened again from the history; empty
 * for a page that was opened by a link or its address.
 * @param {string} name
 */
export function storedBeforeReload(name) {
  const [navigation] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType("navigation"));
  return navigation?.type === "navigate" ? "" : stored("sessionStorage", name);
}

/** Removes everything that was stored. @param {"localStorage" | "sessionStorage"} kind */
export function forget(kind) {
  try {
    window[kind].clear();
  } catch {
    // storage is forbidden
  }
}
