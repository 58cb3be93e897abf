// The panel "Statistics": four pictures of the run so far. Folds in, bars out; memoised on what is shown.

import { counted, figure, short, whole } from "../../core/words.js";
import { make } from "../../core/dom.js";
import { acceptance, forwardCounts } from "../folds/counts.js";
import { calibration, draftsJudged, judge } from "../folds/judged.js";
import { byKind } from "../folds/kinds.js";
import { Picture } from "./picture.js";
import { shownLanes, shownKey } from "../shown.js";

const PICTURES = [
  {
    key: "positions",
    title: "Acceptance by position in the forward, %",
    label: "position",
    value: "share of forwards proposing there that emitted there",
  },
  { key: "counts", title: "Tokens per forward", label: "tokens", value: "forwards" },
  {
    key: "calibration",
    title: "Confidence against agreement with AR, %",
    label: "confidence",
    value: "share that AR would have chosen",
  },
  {
    key: "kinds",
    title: "Tokens per forward by kind of text",
    label: "kind",
    value: "tokens per forward",
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
    this.pictures = Object.fromEntries(PICTURES.map((each) => [each.key, new Picture(each)]));
    element.append(...Object.values(this.pictures).map((picture) => picture.element));
    this.hint = make(
      "p",
      "rv-pic-hint",
      "Grey counts beneath the bars: how many were judged. Line: their mean confidence; where a bar ends below it, the model was too sure.",
    );
    this.pictures.calibration.element.append(this.hint);
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
    this.drawPositions(lane);
    this.drawCounts(lane);
    this.drawCalibration(lane, other);
    this.drawKinds(lane);
  }

  /** @param {Lane} lane */
  drawPositions(lane) {
    const items = acceptance(lane.steps).map(({ position, proposed, emitted, share }) => ({
      label: String(position),
      share,
      top: String(Math.round(100 * share)),
      value: `${percent(share)} (${whole(emitted)} of ${whole(proposed)})`,
      say: `Position ${position}: ${whole(emitted)} of ${counted(proposed, "forward")} that proposed there emitted there, ${percent(share)}.`,
    }));
    this.pictures.positions.draw(
      items,
      "Of the forwards that proposed at a position, the share that emitted there; the first is always taken.",
    );
  }

  /** @param {Lane} lane */
  drawCounts(lane) {
    const counts = forwardCounts(lane.steps);
    const most = Math.max(...counts.map((each) => each.forwards));
    const items = counts.map(({ count, forwards }) => ({
      label: String(count),
      share: forwards / most,
      top: whole(forwards),
      n: Math.min(count, 5),
      value: whole(forwards),
      say: `${counted(forwards, "forward")} of ${whole(lane.steps.length)} took ${counted(count, "token")}.`,
    }));
    this.pictures.counts.draw(
      items,
      `Forwards by how many tokens they took; ${figure(lane.tokens.length / lane.steps.length)} on average.`,
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
      value: num ? `${percent(share)} of ${whole(num)}, mean confidence ${short(mean, 3)}` : "none judged",
      sub: whole(num),
      say: binText({ low, high, num, agreed, mean }),
    }));
    return picture.draw(items, calibrationText(pairs, judged.length ? source : "", drafts.length, metric));
  }

  /** @param {Lane} lane */
  drawKinds(lane) {
    const kinds = byKind(lane.tokens);
    const most = Math.max(1, ...kinds.map((each) => each.tpf || 0));
    const items = kinds.map(({ kind, tokens, tpf }) => ({
      label: kind,
      share: tokens ? tpf / most : NaN,
      isVoid: !tokens,
      top: tokens ? `${figure(tpf)} · ${counted(tokens, "token")}` : "none",
      value: tokens ? `${figure(tpf)} (${counted(tokens, "token")})` : "none",
      say: tokens ? `${kind}: ${counted(tokens, "token")} at ${figure(tpf)} tokens per forward.` : `No ${kind} so far.`,
    }));
    this.pictures.kinds.draw(
      items,
      "Each token counts as 1/n of a forward that took n, so the kinds add up to the forwards.",
    );
  }
}

/** @param {{ low: number, high: number, num: number, agreed: number, mean: number }} bin */
function binText({ low, high, num, agreed, mean }) {
  const range = `Confidence ${short(low)} to ${short(high)}`;
  if (!num) return `${range}: no token judged.`;
  return `${range}: AR would have chosen ${whole(agreed)} of ${counted(num, "token")}, ${percent(agreed / num)}; mean confidence ${short(mean, 3)}.`;
}

/**
 * @param {Lane} lane
 * @param {string} source
 */
function noCalibration(lane, source) {
  if (lane.tokens.every((token) => token.position === 0))
    return "Every token so far was the first of its forward and so AR's own choice: nothing to calibrate.";
  return source
    ? "No token behind a forward's first has been judged yet."
    : "Run with plain AR beside it to see whether the model is as sure as it is right: this trace does not tell what AR would have chosen.";
}

/**
 * @param {{ confidence: number, agrees: boolean }[]} pairs
 * @param {string} source
 * @param {number} numDrafts
 * @param {string} metric
 */
function calibrationText(pairs, source, numDrafts, metric) {
  const agreed = pairs.filter((pair) => pair.agrees).length;
  const what = numDrafts ? "tokens and drafts" : "tokens";
  const how = source === "lane" ? ", up to the first difference" : "";
  const by = metric === "probability" ? "" : ` Confidence is by ${metric}.`;
  return `AR would have chosen ${whole(agreed)} of ${whole(pairs.length)} ${what} that came after a forward's first${how}.${by}`;
}
