// The runs that are ticked, compared: figures in a table, texts aligned, charts over each other.

import { coloursOf } from "../../core/colours.js";
import { find, make } from "../../core/dom.js";
import { exportMenu, plotlyOf } from "../../export/menu.js";
import { chartsPng, elementPng, paneOf } from "../../export/png.js";
import { Card } from "../../text/card.js";
import { LETTERS } from "./figures.js";
import { PLOTS, overlayFigure } from "./plot_specs.js";
import { Plots } from "./plots.js";
import { drawTable } from "./table.js";
import { Texts } from "./texts.js";

const PANE = 640; // width of a text in a picture

export class Comparison {
  /** @type {Pin[]} */
  pins;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.element = find(root, ".cv-comparison");
    this.table = find(root, ".cv-figuretable");
    this.chooser = /** @type {HTMLSelectElement} */ (find(root, ".cv-reference select"));
    this.card = new Card(find(root, ".rv-card"), root);
    this.texts = new Texts(find(root, ".cv-texts"), {
      token: (...a) => this.card.token(...a),
      leave: () => this.card.hide(),
    });
    this.plots = new Plots(root, find(root, ".rv-charts"));
    this.chooser.addEventListener("change", () => this.texts.align(this.chooser.selectedIndex));
    find(root, ".cv-comparehead").append(exportMenu(() => this.offers(), "Export pictures"));
    this.pins = [];
  }

  /**
   * Nothing to do where the same runs are shown already; `isNamed`: only a name has changed.
   * @param {Pin[]} pins
   * @param {boolean} [isNamed]
   */
  show(pins, isNamed = false) {
    const isSame = pins.length === this.pins.length && pins.every((pin, i) => pin === this.pins[i]);
    if (isSame && !isNamed) return;
    const kept = this.pins[this.chooser.selectedIndex];
    this.pins = pins;
    this.card.hide();
    this.element.hidden = pins.length < 2;
    if (pins.length < 2) return;
    drawTable(this.table, pins);
    this.chooser.replaceChildren(...pins.map((pin, i) => make("option", "", `${LETTERS[i]} · ${pin.name}`)));
    this.chooser.selectedIndex = Math.max(0, pins.indexOf(kept));
    this.texts.show(pins, this.chooser.selectedIndex);
    this.plots.show(pins.map((pin) => pin.lane));
  }

  recolour() {
    this.plots.draw();
  }

  offers() {
    /** @param {string} what */
    const name = (what) => `compared-${this.pins.length}-runs-${what}.png`;
    return [
      {
        label: "Texts",
        files: [
          {
            text: "PNG",
            hint: "picture of the aligned texts",
            make: async () => ({ name: name("texts"), blob: await this.textsPng() }),
          },
        ],
      },
      {
        label: "Charts",
        files: [
          {
            text: "PNG",
            hint: "picture of the charts",
            make: async () => ({ name: name("charts"), blob: await this.chartsPng() }),
          },
        ],
      },
    ];
  }

  // The panes anew, whole, with what is marked on the page.
  textsPng() {
    const row = make("div", "cv-picture");
    this.texts.panes.forEach((shown, i) => {
      const { element, view } = paneOf(shown.lane, `${LETTERS[i]} · ${this.pins[i].name}`);
      shown.view.tokens.forEach((node, n) => {
        if (node.classList.contains("cv-differs")) view.tokens[n].classList.add("cv-differs");
      });
      row.append(element);
    });
    return elementPng([row], this.root, PANE * this.pins.length);
  }

  async chartsPng() {
    const lanes = this.pins.map((pin) => pin.lane);
    const c = coloursOf(this.root);
    const figures = PLOTS.map(([key, title]) => ({ title, spec: overlayFigure(key, lanes, c) }));
    return chartsPng(figures, this.root, await plotlyOf(this.root));
  }
}
