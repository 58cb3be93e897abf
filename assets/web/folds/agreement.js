// How far a run agrees with plain AR, token by token. Pure; no DOM.

import { divergence } from "../core/folds.js";
import { isVerified } from "../core/methods.js";

/**
 * Returns how far a lane agrees with plain AR: whether AR would have chosen each token, given the same text before it.
 * The first token of a pass is AR's own choice by construction, as is every token of AR and of a lossless run. The
 * other tokens are judged by the next pass (`token.check`) or, if the trace has no checks, by the AR lane up to the
 * first difference. own: number of tokens that are AR's by construction. judged: other tokens with a known result.
 * open: number of tokens with no known result (yet). agreed: number of judged tokens that agree. source: "checks",
 * "lane" or "".
 * @param {Lane} lane
 * @param {Lane | null | undefined} other
 */
export function judge(lane, other) {
  /** @param {Token} token */
  const isChecked = (token) => token.check && token.step.index < lane.steps.length - 1; // checked by the next pass
  const hasChecks = lane.tokens.some(isChecked);
  const source = hasChecks ? "checks" : other && other.tokens.length ? "lane" : "";
  const end = source === "lane" && other ? comparable(lane, other) : 0;
  /** @type {Verdict[]} */
  const judged = [];
  let [own, open] = [0, 0];
  lane.tokens.forEach((token, place) => {
    if (token.position === 0 || isVerified(token.step.settings)) own += 1;
    else if (token.check && isChecked(token))
      judged.push({ place, token, ar: token.check, agrees: token.check.id === token.id });
    else if (other && place < end) judged.push({ place, token, ...comparedWith(token, other.tokens[place]) });
    else open += 1;
  });
  return { own, judged, open, agreed: judged.filter(({ agrees }) => agrees).length, source };
}

/**
 * @param {Token} token
 * @param {Token} choice
 */
const comparedWith = (token, choice) => ({
  ar: { id: choice.id, p: choice.confidence },
  agrees: choice.id === token.id,
});

/**
 * Returns how many positions of two lanes can be compared: those up to and including the first difference, because
 * later tokens follow different texts.
 * @param {Lane} lane
 * @param {Lane} other
 */
function comparable(lane, other) {
  const place = divergence(lane, other, 0);
  return place < 0 ? Math.min(lane.tokens.length, other.tokens.length) : place + 1;
}

/**
 * Returns the verified drafts of a lossless run with their results. In each pass, drafts after the first one that AR
 * did not confirm are left out.
 * @param {Lane} lane
 */
export function draftsJudged(lane) {
  /** @type {{ place: number, draft: Proposal, token: Token, confidence: number, agrees: boolean }[]} */
  const results = [];
  lane.steps.forEach((step, i) => {
    const next = lane.steps[i + 1];
    if (!step.drafted || !next || !isVerified(next.settings)) return;
    for (let j = 0; j < Math.min(step.drafted, next.count); j += 1) {
      const draft = step.proposals[step.count + j];
      const token = lane.tokens[next.first + j];
      const agrees = draft[0] === token.id;
      results.push({ place: next.first + j, draft, token, confidence: draft[1], agrees });
      if (!agrees) break;
    }
  });
  return results;
}
