// What every view of lines has: it reads its value bit by bit, draws once a frame, follows the theme.
// A view gives start(head), line(target, data, text), clear(), fail(), draw() and recolour().

import { Feed } from "./feed.js";

const FRAME_BUDGET = 10; // milliseconds of parsing a frame; the rest waits for the next

export class LineView {
  constructor(root) {
    this.root = root;
    this.feed = new Feed(this);
  }

  read(value) {
    try {
      this.feed.read(value);
    } catch {
      this.broken();
    }
    this.schedule();
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      let isMore = false;
      try {
        isMore = this.feed.work(FRAME_BUDGET);
      } catch {
        this.broken();
      }
      this.draw();
      if (isMore) this.schedule();
    });
  }

  broken() {
    this.feed.lines = [];
    this.fail();
  }

  watchTheme() {
    const observer = new MutationObserver(() => {
      if (this.root.isConnected) this.recolour();
      else observer.disconnect();
    });
    for (const node of [document.body, document.documentElement]) {
      observer.observe(node, { attributes: true, attributeFilter: ["class"] });
    }
  }
}

// Called by a component's js_on_load, or by a page of its own: one view on one element, kept there as `lineView`.
export function mountView(View, element, props, watch) {
  const root = element.querySelector(".mars-race");
  const view = new View(root);
  root.lineView = view;
  watch("value", () => view.read(props.value));
  view.read(props.value);
  return view;
}
