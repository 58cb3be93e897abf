// Stands in the page before Gradio's scripts, which keep the function that asks for a frame as they find it. Gradio leaves
// the clock of its "Loading…" running for as long as a page is open, though that sign is gone: it asks for every frame,
// nearly a tenth of a core beside the model. None of its clocks is shown here, so none of them gets a frame.

(() => {
  const CLOCK = /^\(\)\s*=>\s*\{\s*[\w$]+\([\w$]+,\s*\(performance\.now\(\)\s*-/;
  const ask = globalThis.requestAnimationFrame?.bind(globalThis);
  if (ask) globalThis.requestAnimationFrame = (frame) => (CLOCK.test(String(frame)) ? 0 : ask(frame));
})();
