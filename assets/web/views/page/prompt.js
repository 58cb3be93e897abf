// Tells the views that show results what visitors do beside them: what stands in the prompt's box, so that they can say
// when it is another prompt, and that something else was chosen, so that a refusal does not outlive what it was about.

import { whenThere } from "../../core/dom.js";
import { isGoingOn } from "../conversation/view.js";

/** @type {Record<string, string>} */
const VIEWS = { live: "#race .mars-race", grid: "#grid .mars-grid" };
const DESK = "#desk"; // the controls beside the race view

// Answers the function that the page calls whenever a box changes, whoever changed it.
export function mountPrompt() {
  /** @type {Record<string, string>} */
  const wanted = {};
  /** @param {string} place */
  const tell = (place) =>
    whenThere(
      () => document.querySelector(VIEWS[place])?.lineView,
      (view) => view.want(place === "live" && isGoingOn() ? null : wanted[place]),
    );
  /** @param {Event} given */
  const acted = ({ target }) => {
    if (target instanceof Element && target.closest(DESK)) document.querySelector(VIEWS.live)?.lineView?.dismiss();
  };
  for (const act of ["input", "change", "click"]) document.addEventListener(act, acted);
  /**
   * @param {string} place
   * @param {string} prompt
   */
  return (place, prompt) => {
    wanted[place] = prompt;
    tell(place);
  };
}
