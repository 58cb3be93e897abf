// The τ of the Live tab as a lens: moving it is told to the race view, which looks through it while no run is going on.

import { targetOf } from "../../core/dom.js";

export function mountLens() {
  document.addEventListener("input", (event) => {
    if (!(event.target instanceof HTMLInputElement) || !targetOf(event).closest("#tau")) return;
    const { value } = event.target;
    if (value !== "") document.querySelector("#race .mars-race")?.lineView?.lens?.set(Number(value));
  });
}
