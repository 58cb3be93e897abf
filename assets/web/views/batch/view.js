// The batch view: binds the feed to sides, lanes, totals and figures; draws once a frame.

import { find, put } from "../../core/dom.js";
import { LineView, mountView } from "../../core/line_view.js";
import { Lanes } from "./lanes.js";
import { Plots } from "./plots.js";
import { Side } from "./side.js";
import { Totals, buildLegend } from "./totals.js";

const SCALE_STEP = 16; // strips change their scale now and then, not with every forward
const EMPTY =
  "Run decodes all prompts together, by one method and then by the other. Each prompt gets a lane that shows how many tokens every forward pass of the model gave it, and where it idled; plain AR writes one per pass.";

class BatchView extends LineView {
  /** @type {string} */
  run;
  /** @type {Side[]} */
  sides;
  /** @type {Lanes[]} */
  lanes;

  /**
   * @param {HTMLElement} root
   * @param {(run: string) => Promise<string>} missed
   */
  constructor(root, missed) {
    super(root, missed);
    this.status = find(root, ".bv-status");
    this.holder = find(root, ".bv-sides");
    this.live = find(root, ".rv-live");
    this.totals = new Totals(root);
    this.plots = new Plots(root);
    buildLegend(find(root, ".bv-legend"), (isOn) => root.classList.toggle("bv-whole", isOn));
    this.watchTheme();
    this.clear();
  }

  /** @param {string} [text] */
  fail(text = "This batch cannot be drawn: a line of it is broken.") {
    this.say({ text, kind: "error" });
  }

  clear() {
    this.start({ run: "", sides: [], prompts: [] });
    this.say({ text: EMPTY, kind: "empty" });
  }

  /** @param {BatchHead} head */
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

  /**
   * @param {string} target
   * @param {any} data
   */
  line(target, data) {
    const side = this.sides.find((each) => each.name === (data.side || target));
    if (target === "status") this.say(data);
    else if (target === "figures") this.plots.show(data);
    else if (!side) throw new Error(`No side is called ${target}.`);
    else if (target === "totals") side.totals = data;
    else if (target === "verdict") side.rows[data.row].verdict = data.right;
    else side.push(data);
  }

  /** @param {Note} given */
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
      const limit = this.sides[index].header?.settings?.max_new_tokens ?? 1;
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

  /**
   * Positions of a full block: what a forward of the block method feeds, its first one apart.
   * @param {Side} side
   */
  cacheBlock(side) {
    const cells = side.rows.flatMap((row) => row.cells[1] || []);
    return cells.length ? Math.max(...cells.map((cell) => cell.filling + cell.scratch)) : 1;
  }

  /** @param {string} [text] */
  pointed(text) {
    if (text) put(this.live, text);
    this.schedule();
  }

  recolour() {
    this.plots.draw();
  }
}

/**
 * @param {HTMLElement} element
 * @param {{ value: string }} props
 * @param {(name: string, changed: () => void) => void} watch
 * @param {(run: string) => Promise<string>} [missed]
 */
export const mountBatchView = (element, props, watch, missed) => mountView(BatchView, element, props, watch, missed);
