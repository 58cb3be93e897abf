// Ctrl or Cmd with Enter in the prompt runs, Escape anywhere stops; on a phone, running scrolls to the race.

(() => {
  const press = (id) => document.getElementById(id)?.click();

  // Where the race stands below the controls, running brings it into sight.
  document.addEventListener("click", (event) => {
    const isRun = event.target instanceof Element && event.target.closest("#run");
    if (isRun && window.innerWidth < 720) document.getElementById("stage")?.scrollIntoView();
  });

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
