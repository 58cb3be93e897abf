// Whose charts these are: a line of its own colour for each run, with its name and settings. Text only.

import { runColours } from "../../core/colours.js";
import { make, put } from "../../core/dom.js";
import { settingsText } from "../text/card.js";

export class ChartLegend {
  constructor() {
    this.element = make("p", "rv-runs rv-num");
  }

  /** @param {Lane[]} lanes */
  draw(lanes) {
    while (this.element.children.length > lanes.length) this.element.lastElementChild?.remove();
    lanes.forEach((lane, i) => {
      if (!this.element.children[i]) {
        const item = make("span", "rv-run");
        item.append(make("i"), make("b", "rv-run-name"), make("span"));
        this.element.append(item);
      }
      const item = /** @type {HTMLElement} */ (this.element.children[i]);
      item.dataset.colour = String(runColours.placeOf(lane));
      item.dataset.twin = String(i > 0 && lanes[0].method === lane.method);
      put(item.children[1], lane.title);
      put(item.children[2], settingsText(lane.settings));
    });
  }
}
