// The picture of the first passes of a recorded run: for each lane one row per pass, with the tokens that the pass
// wrote.

import { shown } from "../core/bytes.js";
import { make } from "../core/dom.js";
import { Lane } from "../core/trace.js";
import { capital, counted } from "../core/words.js";

const ROWS = 9; // maximum number of passes shown for a lane

export class PassesView {
  /**
   * @param {HTMLElement} element
   * @param {Recording["lanes"]} lanes
   */
  constructor(element, lanes) {
    element.append(make("div", "ex-passes", ...lanes.map((recorded) => laneOf(recorded))));
  }
}

/** @param {Recording["lanes"][number]} recorded */
function laneOf({ name, title, lines }) {
  const lane = Lane.of(lines, { lane: name, title });
  const { steps, tokens } = lane;
  const rows = steps.slice(0, ROWS).map(({ first, count }) => {
    const text = tokens.slice(first, first + count).map((token) => shown(token.text).replaceAll("\n", "⏎"));
    return make("li", "", make("span", `ex-wrote rv-c rv-n${Math.min(count, 5)}`, text.join("")));
  });
  const numHidden = steps.length - rows.length;
  return make(
    "div",
    { class: "ex-passlane", "data-lane": name },
    make("h4", "", `${capital(title)}: ${counted(steps.length, "pass", "passes")}`),
    make("ol", "", ...rows),
    make("p", "ex-left", numHidden > 0 ? `and ${counted(numHidden, "more pass", "more passes")}` : ""),
  );
}
