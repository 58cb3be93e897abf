// Keys that work everywhere on the page: Ctrl or Cmd with Enter in the prompt runs, Escape stops.

(() => {
  const press = (id) => document.getElementById(id)?.click();

  document.addEventListener("keydown", (event) => {
    const isInPrompt = event.target instanceof Element && event.target.closest("#prompt");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && isInPrompt) {
      event.preventDefault();
      press("run");
    }
    const isListOpen = event.target instanceof Element && event.target.getAttribute("aria-expanded") === "true";
    if (event.key === "Escape" && !event.defaultPrevented && !isListOpen) press("stop");
  });
})();
