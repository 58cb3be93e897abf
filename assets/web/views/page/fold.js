// On a phone the knobs stand in a bar at the bottom edge, of which only Run and Stop are open; a button opens the rest,
// and running folds it again. Wider pages show everything and have no such button (page.css).

import { make, targetOf } from "../../core/dom.js";

const PAUSE = 100; // milliseconds until knobs that are not there yet are looked for again

export function mountFold() {
  const knobs = document.getElementById("knobs");
  const row = document.getElementById("go");
  if (!knobs || !row) return void setTimeout(mountFold, PAUSE);
  const button = make("button", "", "τ · B");
  Object.assign(button, { type: "button", id: "fold" });
  button.setAttribute("aria-label", "Controls: τ, B, slow motion");
  button.setAttribute("aria-controls", knobs.id);
  /** @param {boolean} isOpen */
  const open = (isOpen) => {
    knobs.classList.toggle("open", isOpen);
    button.setAttribute("aria-expanded", String(isOpen));
  };
  open(false);
  button.addEventListener("click", () => open(!knobs.classList.contains("open")));
  knobs.addEventListener("click", (event) => {
    if (targetOf(event).closest("#run")) open(false);
  });
  row.append(button);
  return undefined;
}
