// The panels below the charts: tabs of which one is open. Decides when a panel has to redraw. A panel is a class of
// assets/web/panels/: static id, static title, constructor(element, view), draw().

import { attribute, button, isModified, make, watchSight } from "../../core/dom.js";
import { AgainstArPanel } from "../../panels/against_ar.js";
import { CachePanel } from "../../panels/cache.js";
import { LayersPanel } from "../../panels/layers.js";
import { StatisticsPanel } from "../../panels/statistics.js";
import { WhatIfPanel } from "../../panels/whatif.js";
import { WhyPanel } from "../../panels/why.js";

const PANELS = [WhyPanel, WhatIfPanel, StatisticsPanel, AgainstArPanel, CachePanel, LayersPanel];
/** @type {Record<string, number>} */
const KEYS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
let opened = ""; // the tab chosen last, for all views until the page is closed
let counted = 0;

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
    counted += 1;
    this.tabs = kinds.map((Kind) => this.tab(Kind));
    const given = { class: "rv-tabs", role: "tablist", "aria-label": "About this run" };
    const list = make("div", given, ...this.tabs.map((tab) => tab.button));
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
    const id = `rv-${counted}-${Kind.id}`;
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
    for (const each of this.tabs) {
      const isOpen = each === tab;
      each.element.hidden = !isOpen;
      attribute(each.button, { "aria-selected": isOpen, tabindex: isOpen ? 0 : -1 });
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

  // Draws after the frame that requested it: drawing text and panel together would block the page noticeably.
  later() {
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.draw();
    });
  }

  // Redraws the open panel if its data may have changed; while it is not visible, only at the start and the end of a
  // run.
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
