// The panels below the charts, as tabs. One panel is open at a time; this file decides when it is redrawn. A panel is a
// class in assets/web/panels/ with static id, static title, constructor(element, view) and draw().

import { attribute, button, isModified, make, watchSight } from "../../core/dom.js";
import { AgainstArPanel } from "../../panels/against_ar.js";
import { WhatIfPanel } from "../../panels/whatif.js";
import { WhyPanel } from "../../panels/why.js";

const PANELS = [WhyPanel, WhatIfPanel, AgainstArPanel];
/** @type {Record<string, number>} */
const KEYS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
let opened = ""; // id of the panel that the visitor opened last, in any view of the page
let numCreated = 0; // makes the ids of elements unique

export class Panels {
  /** @type {Tab | undefined} */
  current;

  /**
   * @param {HTMLElement} element
   * @param {View} view
   * @param {PanelKind[]} [kinds]
   */
  constructor(element, view, kinds = PANELS) {
    this.element = element;
    this.view = view;
    this.drawn = "";
    /** @type {number | null} */
    this.timer = null;
    numCreated += 1;
    this.tabs = kinds.map((Kind) => this.tab(Kind));
    const attributes = { class: "rv-tabs", role: "tablist", "aria-label": "About this run" };
    const list = make("div", attributes, ...this.tabs.map((tab) => tab.button));
    list.addEventListener("keydown", (event) => this.key(event));
    element.replaceChildren(list, ...this.tabs.map((tab) => tab.element));
    element.hidden = !kinds.length;
    this.isInSight = false;
    watchSight(element, (isInSight) => {
      this.isInSight = isInSight;
      this.later();
    });
    if (kinds.length) this.open(this.tabs.find((tab) => tab.Kind.id === opened) || this.tabs[0], false);
  }

  /** @param {PanelKind} Kind */
  tab(Kind) {
    const id = `rv-${numCreated}-${Kind.id}`;
    const head = { class: "rv-tab", id: `${id}-tab`, role: "tab", "aria-controls": id };
    const body = { class: "rv-panel", id, tabindex: 0, role: "tabpanel", "aria-labelledby": head.id };
    /** @type {Tab} */
    const tab = {
      Kind,
      button: button(head, Kind.title, () => this.open(tab, true)),
      element: make("div", { ...body, "data-panel": Kind.id, hidden: "" }),
      panel: null,
    };
    return tab;
  }

  /**
   * @param {Tab} tab
   * @param {boolean} isChosen
   */
  open(tab, isChosen) {
    for (const listed of this.tabs) {
      const isOpen = listed === tab;
      listed.element.hidden = !isOpen;
      attribute(listed.button, { "aria-selected": isOpen, tabindex: isOpen ? 0 : -1 });
    }
    this.current = tab;
    this.drawn = "";
    if (!isChosen) return;
    opened = tab.Kind.id;
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!(event.key in KEYS) || isModified(event)) return;
    event.preventDefault();
    const last = this.tabs.length - 1;
    const at = this.tabs.indexOf(/** @type {Tab} */ (this.current)) + KEYS[event.key];
    const tab = this.tabs[Number.isFinite(at) ? (at + last + 1) % (last + 1) : at < 0 ? 0 : last];
    this.open(tab, true);
    tab.button.focus();
  }

  // Draws the panel after the current frame. Drawing text and panel in the same frame would block the page noticeably.
  later() {
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.draw();
    });
  }

  // Redraws the open panel if its data may have changed. A panel outside the window is not redrawn while the displayed
  // position advances by itself, except once at the start of a run.
  draw() {
    const { view, current } = this;
    if (!current || !view.run || !view.run.lanes.length) return;
    const { run, selected } = view;
    const isBegun = this.drawn.startsWith(`${run.id} `);
    if (isBegun && view.isMoving && !this.isInSight) return;
    const lanes = run.lanes.map(
      (lane) => `${view.shown(lane).steps.length}/${lane.steps.length}${lane.end ? "." : ""}`,
    );
    const state = [run.id, ...lanes, selected ? `${selected.lane.name}:${selected.step}` : "", view.lens.tau].join(" ");
    if (state === this.drawn) return;
    this.drawn = state;
    current.panel ||= new current.Kind(current.element, view);
    current.panel.draw();
  }

  recolour() {
    this.drawn = "";
    this.draw();
  }
}
