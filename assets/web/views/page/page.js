// What the page has and a component alone has not: answers to what views ask, links, keys.
// Ctrl or Cmd with Enter in a prompt runs, Escape anywhere stops; on a phone, running scrolls to what it draws.

(() => {
  window.mars.mountApi();
  window.mars.mountAsks();
  window.mars.mountPrompt();
  window.mars.mountShare();
  window.marsAsk = [...(window.marsAsk || []), "pin", "open"]; // answered by views/compare/pin.js

  const press = (id) => document.getElementById(id)?.click();
  const RUNS = { run: "stage", "batch-run": "batch-stage", "grid-run": "grid-stage" }; // button -> what it draws into
  const PROMPTS = { prompt: "run", "batch-prompts": "batch-run", "grid-prompt": "grid-run" };
  const around = (event, ids) =>
    Object.keys(ids).find((id) => event.target instanceof Element && event.target.closest(`#${id}`));

  // Where the lanes stand below the controls, running brings them into sight.
  document.addEventListener("click", (event) => {
    const button = around(event, RUNS);
    if (button && window.innerWidth < 720) document.getElementById(RUNS[button])?.scrollIntoView();
  });

  document.addEventListener("keydown", (event) => {
    const prompt = around(event, PROMPTS);
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && prompt) {
      event.preventDefault();
      press(PROMPTS[prompt]);
    }
    const isListOpen = event.target instanceof Element && event.target.getAttribute("aria-expanded") === "true";
    if (event.key === "Escape" && !event.defaultPrevented && !isListOpen)
      ["stop", "batch-stop", "grid-stop"].forEach(press);
  });
})();
