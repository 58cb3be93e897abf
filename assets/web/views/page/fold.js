// On a phone the knobs stand in a bar at the bottom edge, of which only Run and Stop are open; a button opens the rest,
// and running folds it again. Wider pages show everything and have no such button (page.css).

import { make, targetOf, whenThere } from "../../core/dom.js";

export function mountFold() {
  whenThere(() => document.getElementById("go"), fold);
}

/** @param {HTMLElement} row */
function fold(row) {
  const knobs = /** @type {HTMLElement} */ (row.closest("#knobs"));
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
}
