// Opens the page of the API where the address asks for it. Gradio 6 takes ?view=api for an open page, but loads that page
// only when the button in its footer is pressed: pressed once it closes what is not there, pressed again it opens.

const PAUSE = 100; // milliseconds until the button is looked for again

export function mountApi() {
  if (new URLSearchParams(location.search).get("view") !== "api") return;
  const open = () => {
    const button = /** @type {HTMLElement | null} */ (document.querySelector("footer button.show-api"));
    if (!button) return void setTimeout(open, PAUSE);
    button.click();
    button.click();
    return undefined;
  };
  open();
}
