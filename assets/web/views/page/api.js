// Opens the page of the API where the address asks for it. Gradio 6 takes ?view=api for an open page, but loads that page
// only when the button in its footer is pressed: pressed once it closes what is not there, pressed again it opens.

import { whenThere } from "../../core/dom.js";

export function mountApi() {
  if (new URLSearchParams(location.search).get("view") !== "api") return;
  const look = () => /** @type {HTMLElement | null} */ (document.querySelector("footer button.show-api"));
  whenThere(look, (button) => {
    button.click();
    button.click();
  });
}
