// The three pictures of recorded passes, in "How it works" and in the presentation: the ladder of a pass, the dial of τ,
// and a lossless repair.

import { button, make, put } from "../core/dom.js";
import { counted, probability, short } from "../core/words.js";
import { dial, ladder, repair, repairs } from "./rungs.js";

/** @type {Record<string, string>} */
const MARKS = { kept: "✓", ar: "✓", draft: "…", wrong: "✗", dropped: "✗" };
const TAU = 0.9; // where the dial starts

/** @param {string} name */
const quoted = (name) => `“${name.replace(/^␣/, "")}”`;

/** @param {Rung} rung */
function rowOf({ fed, isMask, name, p, kind, fate }) {
  return make(
    "li",
    { class: `ex-rung ex-${kind}`, "data-kind": kind },
    make("code", isMask ? "ex-fed ex-mask" : "ex-fed", fed),
    make("span", { "aria-hidden": true }, "→"),
    make("code", "ex-name", name),
    make("span", "ex-track", make("i", { style: `width: ${100 * Math.max(p, 0)}%` })),
    make("span", "ex-p", probability(p)),
    make("span", "ex-fate", `${MARKS[kind]} ${fate}`),
  );
}

export class Picture {
  /** @param {Lane} lane @param {string} kind "ladder", "dial" or "repair" */
  constructor(lane, kind) {
    this.lane = lane;
    this.kind = kind;
    this.passes = kind === "repair" ? repairs(lane) : lane.steps.map(({ index }) => index);
    const last = repairs(lane).at(-1) ?? 0;
    this.index = kind === "repair" ? last : Math.max(0, last - 1); // the pass that drafted what the repair replaces
    this.tau = TAU;
    this.where = make("span", "ex-where rv-num");
    this.said = make("p", { class: "ex-said", "aria-live": "polite" });
    this.rungs = make("ol", "ex-rungs");
    this.value = make("output");
    this.range = make("input", { type: "range", min: 0, max: 1, step: 0.01, name: "tau" });
    this.range.addEventListener("input", () => this.show(this.index, Number(this.range.value)));
    this.element = make(
      "div",
      { class: "ex-picture", "data-picture": kind },
      make(
        "div",
        "ex-controls",
        button({ "aria-label": "Previous pass" }, "‹", () => this.move(-1)),
        this.where,
        button({ "aria-label": "Next pass" }, "›", () => this.move(1)),
        ...(kind === "dial" ? [make("label", "ex-knob", "τ", this.range, this.value)] : []),
      ),
      this.said,
      this.rungs,
    );
    this.show(this.index);
  }

  /** @param {number} by */
  move(by) {
    const { length } = this.passes;
    const at = this.passes.indexOf(this.index);
    if (length) this.show(this.passes[(at + by + length) % length]);
  }

  /** @param {number} index @param {number} [tau] */
  show(index, tau = this.tau) {
    Object.assign(this, { index, tau });
    const [rungs, said] = this[/** @type {"ladder" | "dial" | "repair"} */ (this.kind)]();
    this.range.value = String(tau);
    put(this.value, short(tau));
    put(this.where, `pass ${index + 1} of ${this.lane.steps.length}`);
    put(this.said, said);
    this.element.style.setProperty("--tau", String(tau));
    this.rungs.replaceChildren(...rungs.map(rowOf));
  }

  /** @returns {[Rung[], string]} */
  ladder() {
    const { count } = this.lane.steps[this.index];
    const rungs = ladder(this.lane, this.index);
    const masks = rungs.filter(({ isMask }) => isMask).length;
    const fed = `${counted(rungs.length - masks, "token")} and ${counted(masks, "mask")}`;
    return [
      rungs,
      `Fed: ${fed}. Written: ${counted(count, "token")}, for which plain AR needs ${count === 1 ? "one pass" : `${count} passes`}.`,
    ];
  }

  /** @returns {[Rung[], string]} */
  dial() {
    const { num, wrong, meant, rungs } = dial(this.lane, this.index, this.tau);
    const count = `${num} of ${rungs.length} accepted`;
    if (wrong < 0) return [rungs, `${count}.`];
    return [rungs, `${count}. ${quoted(rungs[wrong].name)} is a mistake: AR writes ${quoted(meant)}.`];
  }

  /** @returns {[Rung[], string]} */
  repair() {
    const rungs = repair(this.lane, this.index);
    const found = rungs.find(({ kind }) => kind === "wrong");
    return [
      rungs,
      found ? `Drafted: ${quoted(found.fed)}. AR writes ${quoted(found.name)}, which takes its place.` : "",
    ];
  }
}
