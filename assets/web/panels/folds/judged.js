// What plain AR would have chosen at the place of each token, given the same text before. Pure; no DOM.
//
// The first token of a forward is AR's own choice by construction, as is every token of AR and of a
// lossless run. The others are judged by what the next forward said of them (`token.check`) or, where a
// trace does not tell that, by the lane of AR up to the first difference.

import { divergence } from "../../core/folds.js";
import { isVerified } from "../../core/methods.js";

const EDGES = [0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1];

/**
 * own: tokens that are AR's by construction. judged: the others of which it is known. open: not known (yet).
 * source: "checks", "lane" or "" where nothing tells.
 * @param {Lane} lane
 * @param {Lane | null | undefined} other
 */
export function judge(lane, other) {
  /** @param {Token} token */
  const isTold = (token) => token.check && token.step.index < lane.steps.length - 1; // by the next forward
  const hasChecks = lane.tokens.some(isTold);
  const source = hasChecks ? "checks" : other && other.tokens.length ? "lane" : "";
  const end = source === "lane" && other ? comparable(lane, other) : 0;
  /** @type {Verdict[]} */
  const judged = [];
  let [own, open] = [0, 0];
  lane.tokens.forEach((token, place) => {
    if (token.position === 0 || isVerified(token.step.settings)) own += 1;
    else if (token.check && isTold(token))
      judged.push({ place, token, ar: token.check, agrees: token.check.id === token.id });
    else if (other && place < end) judged.push({ place, token, ...laneSays(token, other.tokens[place]) });
    else open += 1;
  });
  return { own, judged, open, agreed: judged.filter((each) => each.agrees).length, source };
}

/**
 * @param {Token} token
 * @param {Token} choice
 */
const laneSays = (token, choice) => ({ ar: { id: choice.id, p: choice.confidence }, agrees: choice.id === token.id });

/**
 * How many places can be compared: up to the first difference, that place included.
 * @param {Lane} lane
 * @param {Lane} other
 */
function comparable(lane, other) {
  const place = divergence(lane, other, 0);
  return place < 0 ? Math.min(lane.tokens.length, other.tokens.length) : place + 1;
}

/**
 * What became of the drafts of lossless forwards: up to the first one that AR did not confirm.
 * @param {Lane} lane
 */
export function draftsJudged(lane) {
  /** @type {{ place: number, draft: Proposal, token: Token, confidence: number, agrees: boolean }[]} */
  const found = [];
  lane.steps.forEach((step, i) => {
    const next = lane.steps[i + 1];
    if (!step.drafted || !next || !isVerified(next.settings)) return;
    for (let j = 0; j < Math.min(step.drafted, next.count); j += 1) {
      const draft = step.proposals[step.count + j];
      const token = lane.tokens[next.first + j];
      const agrees = draft[0] === token.id;
      found.push({ place: next.first + j, draft, token, confidence: draft[1], agrees });
      if (!agrees) break;
    }
  });
  return found;
}

/**
 * Bins of confidence: how many were judged, how many of these agree, their mean confidence.
 * @param {{ confidence: number, agrees: boolean }[]} pairs
 */
export function calibration(pairs) {
  const bins = EDGES.slice(1).map((high, i) => ({ low: EDGES[i], high, num: 0, agreed: 0, sum: 0 }));
  for (const { confidence, agrees } of pairs) {
    const index = EDGES.findLastIndex((edge) => confidence >= edge);
    const bin = bins[Math.min(Math.max(index, 0), bins.length - 1)];
    bin.num += 1;
    bin.sum += confidence;
    if (agrees) bin.agreed += 1;
  }
  return bins.map(({ sum, ...bin }) => ({ ...bin, share: bin.agreed / bin.num, mean: sum / bin.num }));
}
