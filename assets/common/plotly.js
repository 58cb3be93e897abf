// Fetches plotly.js from this server, once a page, whichever view asks first.

// One script for all views of the page; failing is a sentence, not an exception.
export function loadPlotly(url) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  if (!url) return Promise.resolve(null);
  window.marsPlotly ||= new Promise((resolve) => {
    const script = document.createElement("script");
    const base = (window.gradio_config && window.gradio_config.root) || "";
    script.src = url.startsWith("/") ? base + url : url;
    script.onload = () => resolve(window.Plotly || null);
    script.onerror = () => resolve(null);
    document.head.append(script);
  });
  return window.marsPlotly;
}
