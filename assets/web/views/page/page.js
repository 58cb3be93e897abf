// What the page has and a component alone has not: answers to what views ask, links, keys.
// Ctrl or Cmd with Enter in a prompt runs, Escape anywhere stops; on a phone, running scrolls to what it draws.

import { targetOf } from "../../core/dom.js";
import { PINS, mountPins } from "../compare/pin.js";
import { runFirst, turn } from "../conversation/view.js";
import { mountApi } from "./api.js";
import { ANSWERED, asked, mountAsks } from "./asks.js";
import { mountFold } from "./fold.js";
import { mountHelp } from "./help.js";
import { mountLens } from "./lens.js";
import { mountPrompt } from "./prompt.js";
import { share } from "./share.js";

/** @type {Record<string, string>} */
const RUNS = { run: "stage", "batch-run": "batch-stage", "grid-run": "grid-stage", "load-run": "load-stage" }; // button -> what it draws into
/** @type {Record<string, string>} */
const PROMPTS = { prompt: "run", "batch-prompts": "batch-run", "grid-prompt": "grid-run" };

// Called in the document's head; what the page's own scripts call stands in `mars` afterwards.
export function mountPage() {
  mountApi();
  mountAsks();
  mountFold();
  mountHelp();
  mountPins();
  mountLens();
  mountKeys();
  Object.assign(window.mars, { answers: [...ANSWERED, ...PINS], asked, share, turn, runFirst, prompt: mountPrompt() });
}

function mountKeys() {
  /** @param {string} id */
  const press = (id) => document.getElementById(id)?.click();
  /**
   * @param {Event} event
   * @param {Record<string, string>} ids
   */
  const around = (event, ids) =>
    Object.keys(ids).find((id) => event.target instanceof Element && targetOf(event).closest(`#${id}`));

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
    const isListOpen = event.target instanceof Element && targetOf(event).getAttribute("aria-expanded") === "true";
    if (event.key === "Escape" && !event.defaultPrevented && !isListOpen)
      ["stop", "batch-stop", "grid-stop", "load-stop"].forEach(press);
  });
}
