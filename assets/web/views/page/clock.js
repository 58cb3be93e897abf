// Stops the timer of Gradio's "Loading…" indicator. The timer keeps running after the indicator has disappeared and
// requests every animation frame, which takes 7 % of a core. This script recognises its callback and gives it no
// frames; the page shows no other timer of Gradio. It has to run before Gradio's scripts, which store
// requestAnimationFrame when they load. Part of app/gradio_compat.py.

(() => {
  const CLOCK = /^\(\)\s*=>\s*\{\s*[\w$]+\([\w$]+,\s*\(performance\.now\(\)\s*-/;
  const ask = globalThis.requestAnimationFrame?.bind(globalThis);
  if (ask) globalThis.requestAnimationFrame = (frame) => (CLOCK.test(String(frame)) ? 0 : ask(frame));
})();
