// The panel "Statistics": four bar charts of the displayed part of the run, drawn from folds/statistics.js.

import { group, indexForKey, make, put, targetOf } from "../core/dom.js";
import { loopText, upToLoop } from "../core/loops.js";
import { counted, figure, short, whole } from "../core/words.js";
import { acceptance, byKind, calibration, draftsJudged, forwardCounts, judge } from "../folds/statistics.js";
import { shownKey, shownLanes } from "./shown.js";

const PICTURES = [
  {
    key: "positions",
    title: "Acceptance by position in the pass, %",
    label: "position",
    value: "share of proposals accepted",
  },
  { key: "counts", title: "Tokens per pass", label: "tokens", value: "passes" },
  {
    key: "calibration",
    title: "Confidence against agreement with AR, %",
    label: "confidence",
    value: "share that AR would have chosen",
  },
  {
    key: "kinds",
    title: "Tokens per pass by type of text",
    label: "kind",
    value: "tokens per pass",
    isAcross: true,
  },
];

/** @param {number} share */
const percent = (share) => `${Math.round(100 * share)} %`;

export class StatisticsPanel {
  /** @type {string} */
  key;

  static id = "statistics";

  static title = "Statistics";

  /**
   * @param {HTMLElement} element
   * @param {View} view
   */
  constructor(element, view) {
    this.view = view;
    element.classList.add("rv-statistics");
    this.pictures = Object.fromEntries(PICTURES.map((picture) => [picture.key, new Picture(picture)]));
    element.append(...Object.values(this.pictures).map((picture) => picture.element));
    this.hint = make(
      "p",
      "rv-pic-hint",
      "Grey: sample size. Line: mean confidence; a bar below its line means overconfidence.",
    );
    this.pictures.calibration.element.append(this.hint);
    this.loop = make("p", { class: "rv-pic-hint rv-pic-loop", hidden: "" });
    element.prepend(this.loop);
  }

  draw() {
    const key = shownKey(this.view);
    if (key === this.key) return;
    this.key = key;
    const [lane, other] = shownLanes(this.view);
    if (!lane || !lane.steps.length) {
      this.hint.hidden = true;
      Object.values(this.pictures).forEach((picture) => picture.say("Nothing has been decoded yet."));
      return;
    }
    const counted = upToLoop(lane);
    this.loop.hidden = counted === lane;
    put(this.loop, `${loopText([lane])}. The charts cover only the text before the loop.`);
    this.drawPositions(counted);
    this.drawCounts(counted);
    this.drawCalibration(counted, other);
    this.drawKinds(counted);
  }

  /** @param {Lane} lane */
  drawPositions(lane) {
    const items = acceptance(lane.steps).map(({ position, proposed, emitted, share }) => ({
      label: String(position),
      share,
      top: String(Math.round(100 * share)),
      value: `${percent(share)} (${whole(emitted)} of ${whole(proposed)})`,
      say: `Position ${position}: accepted in ${whole(emitted)} of ${counted(proposed, "pass", "passes")} with a proposal there, ${percent(share)}.`,
    }));
    this.pictures.positions.draw(
      items,
      "Share of passes in which the proposal at this position was accepted. The first proposal is always accepted.",
    );
  }

  /** @param {Lane} lane */
  drawCounts(lane) {
    const counts = forwardCounts(lane.steps);
    const most = Math.max(...counts.map(({ forwards }) => forwards));
    const items = counts.map(({ count, forwards }) => ({
      label: String(count),
      share: forwards / most,
      top: whole(forwards),
      n: Math.min(count, 5),
      value: whole(forwards),
      say: `${counted(forwards, "pass", "passes")} of ${whole(lane.steps.length)} wrote ${counted(count, "token")}.`,
    }));
    this.pictures.counts.draw(
      items,
      `Passes by number of tokens; ${figure(lane.tokens.length / lane.steps.length)} on average.`,
    );
  }

  /**
   * @param {Lane} lane
   * @param {Lane | undefined} other
   */
  drawCalibration(lane, other) {
    const picture = this.pictures.calibration;
    const { judged, source } = judge(lane, other);
    const drafts = draftsJudged(lane);
    const known = judged.flatMap(({ token: { confidence }, agrees }) =>
      confidence === null ? [] : [{ confidence, agrees }],
    );
    const pairs = [...known, ...drafts];
    this.hint.hidden = !pairs.length;
    if (!pairs.length) return picture.say(noCalibration(lane, source));
    const metric = (lane.settings && lane.settings.metric) || "probability";
    const items = calibration(pairs).map(({ low, high, num, agreed, share, mean }) => ({
      label: low ? `≥${short(low)}` : `<${short(high)}`,
      share,
      isVoid: !num,
      top: num ? String(Math.round(100 * share)) : "",
      mark: metric === "probability" ? mean : null,
      value: num ? `${percent(share)} of ${whole(num)}, mean confidence ${short(mean, 3)}` : "none compared",
      sub: whole(num),
      say: binText({ low, high, num, agreed, mean }),
    }));
    return picture.draw(items, calibrationText(pairs, judged.length ? source : "", drafts.length, metric));
  }

  /** @param {Lane} lane */
  drawKinds(lane) {
    const kinds = byKind(lane.tokens);
    const most = Math.max(1, ...kinds.map(({ tpf }) => tpf || 0));
    const items = kinds.map(({ kind, tokens, tpf }) => ({
      label: kind,
      share: tokens ? tpf / most : NaN,
      isVoid: !tokens,
      top: tokens ? `${figure(tpf)} · ${counted(tokens, "token")}` : "none",
      value: tokens ? `${figure(tpf)} (${counted(tokens, "token")})` : "none",
      say: tokens ? `${kind}: ${counted(tokens, "token")} at ${figure(tpf)} tokens per pass.` : `No ${kind} so far.`,
    }));
    this.pictures.kinds.draw(items, "Each token of a pass that wrote n tokens counts as 1/n pass of its type.");
  }
}

/** @param {{ low: number, high: number, num: number, agreed: number, mean: number }} bin */
function binText({ low, high, num, agreed, mean }) {
  const range = `Confidence ${short(low)} to ${short(high)}`;
  if (!num) return `${range}: no token compared.`;
  return `${range}: AR would have chosen ${whole(agreed)} of ${counted(num, "token")}, ${percent(agreed / num)}; mean confidence ${short(mean, 3)}.`;
}

/**
 * @param {Lane} lane
 * @param {string} source
 */
function noCalibration(lane, source) {
  if (lane.tokens.every((token) => token.position === 0))
    return "So far every token was the first of its pass, which is AR's own choice: nothing to calibrate.";
  return source
    ? "Only first tokens of a pass so far: nothing to compare."
    : "This trace does not contain AR's choices. Run the prompt again with plain AR next to it to compare confidence with correctness.";
}

/**
 * @param {{ confidence: number, agrees: boolean }[]} pairs
 * @param {string} source
 * @param {number} numDrafts
 * @param {string} metric
 */
function calibrationText(pairs, source, numDrafts, metric) {
  const agreed = pairs.filter((pair) => pair.agrees).length;
  const items = numDrafts ? "tokens and drafts" : "tokens";
  const limit = source === "lane" ? ", up to the first difference" : "";
  const by = metric === "probability" ? "" : ` Confidence measure: ${metric}.`;
  return `AR would have chosen ${whole(agreed)} of ${whole(pairs.length)} ${items}${limit}. The first token of each pass is not counted.${by}`;
}

const CROWDED = 16; // number of bars above which not every bar has a label

// A small bar chart. It is a single tab stop; arrow keys move between bars and show their values. A hidden table
// contains the values for screen readers.
class Picture {
  /** @type {BarItem[]} */
  items = [];
  /** @type {Bar[]} */
  bars = [];
  caption = ""; // text that is shown while no bar is pointed at

  /**
   * label, value: headings of the table's columns. isAcross: whether the bars are horizontal.
   * @param {{ key: string, title: string, label: string, value: string, isAcross?: boolean }} given
   */
  constructor({ key, title, label, value, isAcross }) {
    const className = isAcross ? "rv-pic-bars rv-pic-across" : "rv-pic-bars";
    this.plot = group(className, `${title}. Left and right arrows move between the values.`);
    this.none = make("p", "rv-pic-none");
    this.readout = make("p", { class: "rv-pic-say rv-num", "aria-live": "polite" });
    this.body = make("tbody");
    const head = make("thead", "", make("tr", "", make("th", "", label), make("th", "", value)));
    this.element = make(
      "figure",
      { class: "rv-pic", "data-picture": key },
      make("figcaption", "", title),
      this.plot,
      this.none,
      this.readout,
      make("div", "rv-hidden", make("table", "", make("caption", "", title), head, this.body)),
    );
    this.at = -1;
    this.listen();
  }

  /**
   * Draws one bar for each item. share: length of the bar, 0 to 1; NaN for none. top, label, sub: texts at its end and
   * below it. n: step of the colour ramp, 0 for none. mark: position of a line across the bar, 0 to 1, or null. say:
   * text when the bar is pointed at. value: text in the table. isVoid: whether there is no data.
   * @param {BarItem[]} items
   * @param {string} caption
   */
  draw(items, caption) {
    this.items = items;
    this.caption = caption;
    put(this.none, "");
    this.plot.hidden = false;
    while (this.bars.length > items.length) this.drop();
    while (this.bars.length < items.length) this.add();
    const every = Math.ceil(items.length / CROWDED);
    items.forEach((item, i) => this.drawBar(this.bars[i], item, i % every === 0));
    this.point(Math.min(this.at, items.length - 1));
  }

  /**
   * Shows a sentence instead of the bars.
   * @param {string} sentence
   */
  say(sentence) {
    this.at = -1;
    this.items = [];
    while (this.bars.length) this.drop();
    this.plot.hidden = true;
    put(this.none, sentence);
    put(this.readout, "");
  }

  add() {
    const [top, mark] = [make("span", "rv-pic-top rv-num"), make("b")];
    const [label, sub] = [make("span", "rv-pic-label rv-num"), make("span", "rv-pic-sub rv-num")];
    const cells = [make("th", { scope: "row" }), make("td")];
    const node = make("div", "rv-pic-bar", make("span", "rv-pic-room", make("i"), mark, top), label, sub);
    const row = make("tr", "", ...cells);
    this.plot.append(node);
    this.body.append(row);
    this.bars.push({ node, top, mark, label, sub, row, cells });
  }

  drop() {
    const bar = this.bars.pop();
    bar?.node.remove();
    bar?.row.remove();
  }

  /**
   * @param {Bar} bar
   * @param {BarItem} item
   * @param {boolean} isLabelled
   */
  drawBar(bar, item, isLabelled) {
    const share = Number.isFinite(item.share) ? Math.max(0, Math.min(1, item.share)) : 0;
    bar.node.style.setProperty("--share", share.toFixed(4));
    bar.node.dataset.n = String(item.n || 0);
    bar.node.classList.toggle("rv-pic-void", Boolean(item.isVoid));
    const mark = Number.isFinite(item.mark) ? item.mark : null;
    bar.mark.hidden = typeof mark !== "number";
    bar.node.style.setProperty("--mark", mark?.toFixed(4) ?? "0");
    put(bar.top, isLabelled ? item.top : "");
    put(bar.label, isLabelled ? item.label : "");
    put(bar.sub, item.sub || "");
    put(bar.cells[0], item.label);
    put(bar.cells[1], item.value);
  }

  listen() {
    this.plot.addEventListener("pointermove", (event) => {
      const node = targetOf(event).closest(".rv-pic-bar");
      if (node) this.point(this.bars.findIndex((bar) => bar.node === node));
    });
    this.plot.addEventListener("pointerleave", () => this.point(-1));
    this.plot.addEventListener("blur", () => this.point(-1));
    this.plot.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const last = this.items.length - 1;
    const [next, before] = [this.at + 1, this.at - 1];
    const arrows = { ArrowRight: next, ArrowDown: next, ArrowLeft: before, ArrowUp: before };
    const target = indexForKey(event, { ...arrows, Home: 0, End: last, Escape: -1 }, last);
    if (target === null) return;
    event.stopPropagation();
    this.point(event.key === "Escape" ? -1 : target);
  }

  /** @param {number} index */
  point(index) {
    if (this.at !== index) {
      if (this.bars[this.at]) this.bars[this.at].node.classList.remove("rv-pic-at");
      if (this.bars[index]) this.bars[index].node.classList.add("rv-pic-at");
    }
    this.at = index;
    put(this.readout, index >= 0 ? this.items[index].say : this.caption);
  }
}
