// Runs before Gradio's scripts, which store requestAnimationFrame when they load. The clock of Gradio's "Loading…" keeps
// running while the page is open, although that sign is gone: it requests every frame, which takes 7 % of a core. No clock
// of Gradio's is shown on this page, so none of them gets a frame. Part of app/gradio_compat.py.

(() => {
  const CLOCK = /^\(\)\s*=>\s*\{\s*[\w$]+\([\w$]+,\s*\(performance\.now\(\)\s*-/;
  const ask = globalThis.requestAnimationFrame?.bind(globalThis);
  if (ask) globalThis.requestAnimationFrame = (frame) => (CLOCK.test(String(frame)) ? 0 : ask(frame));
})();
