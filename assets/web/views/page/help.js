// Puts the ⓘ of each control beside it. Gradio builds its controls late, and some anew (B, where a checkpoint has a
// choice of it), so the desk is looked over again whenever it changes.

import { find, whenThere } from "../../core/dom.js";
import { helpFor } from "../../core/help.js";

const DESK = "#desk";
/** @type {Record<string, string>} */
const PLACES = {
  tau: "#tau",
  block_size: "#block_size",
  lossless: "#lossless",
  pace: "#pace",
  presets: "#presets",
}; // what is explained -> where

export function mountHelp() {
  whenThere(
    () => document.querySelector(DESK),
    (desk) => {
      place(desk);
      new MutationObserver(() => place(desk)).observe(desk, { childList: true, subtree: true });
    },
  );
}

/** @param {Element} desk */
function place(desk) {
  for (const [name, selector] of Object.entries(PLACES)) {
    const control = desk.querySelector(selector);
    if (!control || control.querySelector(".help")) continue;
    const help = helpFor(name);
    control.append(help);
    for (const input of control.querySelectorAll("input")) input.setAttribute("aria-describedby", find(help, "p").id);
  }
}
