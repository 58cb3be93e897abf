// Fetches plotly.js from this server, once a page, whichever view asks first.

/** @type {Promise<Plotly | null> | null} */
let loading = null;

/**
 * One script for all views of the page; failing is a sentence, not an exception.
 * @param {string} url
 * @returns {Promise<Plotly | null>}
 */
export function loadPlotly(url) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  if (!url) return Promise.resolve(null);
  loading ||= new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = fileAddress(url);
    script.onload = () => resolve(window.Plotly || null);
    script.onerror = () => resolve(null);
    document.head.append(script);
  });
  return loading;
}

/**
 * Where a file of this server is, wherever the server itself stands.
 * @param {string} url
 */
export function fileAddress(url) {
  const base = (window.gradio_config && window.gradio_config.root) || "";
  return url.startsWith("/") ? base + url : url;
}
