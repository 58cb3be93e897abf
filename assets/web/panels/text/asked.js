// What a result answers: its own prompt, with the settings that no lane's head names. Where the page has another
// prompt in its box by now that is said, so that nobody takes the one for the other's answer.

import { counted, short } from "../../core/words.js";
import { make, put } from "../../core/dom.js";
import { Context } from "./context.js";

const FOREIGN = "Not the prompt in the box: press Run to decode that one.";

/**
 * What was chosen once for the whole run.
 * @param {Settings} settings
 */
export function onceText(settings) {
  const parts = [`at most ${counted(settings.max_new_tokens, "token")}`];
  if (settings.temperature) parts.push(`temperature ${short(settings.temperature)}`, `seed ${settings.seed}`);
  return parts.join(" · ");
}

export class Asked {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.prompt = make("p", "rv-prompt");
    this.prompt.tabIndex = 0; // a long one scrolls, by the keyboard too
    this.prompt.setAttribute("role", "group");
    this.prompt.setAttribute("aria-label", "Prompt of this result");
    this.settings = make("p", "rv-once rv-num");
    this.foreign = make("p", "rv-foreign");
    this.context = new Context();
    element.append(this.context.element, this.prompt, this.settings, this.foreign);
    this.draw(null);
  }

  /**
   * prompt: of the result, null while there is none; settings: in words; wanted: what the box holds, null for no box.
   * @param {string | null} prompt
   * @param {string} [settings]
   * @param {string | null} [wanted]
   */
  draw(prompt, settings = "", wanted = null) {
    const isForeign = prompt !== null && wanted !== null && wanted !== prompt;
    this.element.hidden = prompt === null;
    this.element.dataset.foreign = String(isForeign);
    put(this.prompt, prompt || "");
    put(this.settings, settings);
    put(this.foreign, isForeign ? FOREIGN : "");
  }

  /**
   * As a race tells it: by the first header that came.
   * @param {Lane[]} lanes
   * @param {string | null} wanted
   */
  drawRun(lanes, wanted) {
    const read = lanes.find((lane) => lane.header);
    const header = read?.header;
    this.context.draw(read);
    this.draw(header ? header.prompt || "" : null, header && header.settings ? onceText(header.settings) : "", wanted);
  }
}
