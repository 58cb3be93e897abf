// The batch view: binds the feed to sides, lanes, totals and figures; draws once a frame.

import { Feed } from "./feed.js";
import { make, put } from "./dom.js";
import { Lanes } from "./lanes.js";
import { Plots } from "./plots.js";
import { Side } from "./side.js";
import { Totals, buildLegend } from "./totals.js";

const FRAME_BUDGET = 10; // milliseconds of parsing a frame; the rest waits for the next
const SCALE_STEP = 16; // strips change their scale now and then, not with every forward
const EMPTY = "Run decodes all prompts together. Each row gets a lane that shows what every forward did for it, and where it idled.";

export class BatchView {
  constructor(root) {
    this.root = root;
    this.status = root.querySelector(".bv-status");
    this.holder = root.querySelector(".bv-sides");
    this.live = root.querySelector(".rv-live");
    this.totals = new Totals(root);
    this.plots = new Plots(root);
    this.feed = new Feed(this);
    buildLegend(root.querySelector(".bv-legend"), (isOn) => root.classList.toggle("bv-whole", isOn));
    this.watchTheme();
    this.clear();
  }

  read(value) {
    try {
      this.feed.read(value);
    } catch {
      this.fail();
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
        this.fail();
      }
      this.draw();
      if (isMore) this.schedule();
    });
  }

  fail() {
    this.feed.lines = [];
    this.say({ text: "This batch cannot be drawn: a line of it is broken.", kind: "error" });
  }

  clear() {
    this.start({ run: "", sides: [], prompts: [] });
    this.say({ text: EMPTY, kind: "empty" });
  }

  start(head) {
    this.run = String(head.run);
    this.sides = head.sides.map((side) => new Side(side, head.prompts));
    this.lanes = this.sides.map((side) => new Lanes(side, (text) => this.pointed(text)));
    this.holder.replaceChildren(...this.lanes.map((lanes) => lanes.element));
    this.totals.build(this.sides);
    this.plots.show(null);
    this.say({ text: "", kind: "waiting" });
    this.schedule();
  }

  line(target, data) {
    const side = this.sides.find((each) => each.name === (data.side || target));
    if (target === "status") this.say(data);
    else if (target === "figures") this.plots.show(data);
    else if (!side) throw new Error(`No side is called ${target}.`);
    else if (target === "totals") side.totals = data;
    else if (target === "verdict") side.rows[data.row].verdict = data.right;
    else side.push(data);
  }

  say({ text, kind }) {
    put(this.status, text);
    this.root.dataset.phase = kind;
    if (kind !== "empty" && kind !== "running") put(this.live, text);
  }

  draw() {
    this.root.dataset.run = this.run;
    this.root.dataset.sides = String(this.sides.length);
    if (!this.sides.length) return;
    const longest = Math.max(...this.sides.map((side) => side.forwards), 1);
    const scale = Math.ceil(longest / SCALE_STEP) * SCALE_STEP;
    for (const [index, lanes] of this.lanes.entries()) {
      const header = this.sides[index].header || {};
      const limit = header.settings ? header.settings.max_new_tokens : 1;
      lanes.draw(scale, this.cacheBlock(this.sides[index]), limit);
    }
    this.root.classList.toggle("bv-digits", this.holder.clientWidth / this.shownBeside() / scale >= 11);
    this.totals.update();
  }

  // Sides that stand beside each other: one where they are stacked.
  shownBeside() {
    const [first, second] = this.lanes.map((lanes) => lanes.element.offsetTop);
    return second !== undefined && first === second ? 2 : 1;
  }

  // Positions of a full block: what a forward of the block method feeds, its first one apart.
  cacheBlock(side) {
    const cells = side.rows.flatMap((row) => row.cells[1] || []);
    return cells.length ? Math.max(...cells.map((cell) => cell.filling + cell.scratch)) : 1;
  }

  pointed(text) {
    if (text) put(this.live, text);
    this.schedule();
  }

  watchTheme() {
    const observer = new MutationObserver(() => {
      if (this.root.isConnected) this.plots.draw();
      else observer.disconnect();
    });
    for (const node of [document.body, document.documentElement]) observer.observe(node, { attributes: true, attributeFilter: ["class"] });
  }
}

// Called by the component's js_on_load: one view on one element.
export function mountBatchView(element, props, watch) {
  const root = element.querySelector(".mars-batch");
  const view = new BatchView(root);
  root.batchView = view;
  watch("value", () => view.read(props.value));
  view.read(props.value);
  return view;
}
