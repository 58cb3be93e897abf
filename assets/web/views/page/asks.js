// What a view asks of the page: another run of what it shows, or one that goes on from a token of it.
// Knows the page's ids and the names of its controls; whether their values make sense is the server's affair.

import { tabOf } from "../../core/dom.js";
import { headerOf } from "../../core/folds.js";
import { branch } from "../conversation/view.js";

export const ANSWERED = ["run", "branch"];
/** @type {(keyof Settings)[]} */
const CHOSEN = ["tau", "block_size", "lossless", "groups", "lookup", "metric", "temperature", "seed"];

/** @type {Order | null} */
let wanted = null;

/**
 * The run that is asked for: prompt, checkpoint and given tokens of the run on show, settings, lanes.
 * @param {AskDetail} given
 * @param {Run} run
 */
function orderOf({ kind, lane, token, id, settings }, run) {
  const main = run.lanes.find((each) => each.isMars) || run.lanes[0];
  const from =
    kind === "branch"
      ? run.lanes.find((each) => each.name === (typeof lane === "string" ? lane : lane.name)) || main
      : main;
  const behind = kind === "branch" ? [...from.tokens.slice(0, token).map((each) => each.id), id] : [];
  const names = run.lanes.map((each) => each.name);
  return {
    asked: JSON.stringify({
      prompt: headerOf(from).prompt,
      checkpoint: headerOf(from).checkpoint,
      given: [...from.givenIds(), ...behind],
      history: Object.fromEntries(run.lanes.map((each) => [each.name, each.header?.history || []])),
    }),
    settings: { ...(main.isMars ? main.settings : {}), ...settings },
    view: names.includes("mars") && names.includes("ar") ? "race" : names[0],
  };
}

/**
 * The new values of the page's controls, in the order of their names; what nobody chose stays as it is.
 * @param {Order} given
 * @param {string[]} names
 * @param {unknown[]} now
 */
function filled({ settings, view }, names, now) {
  /** @type {Record<string, unknown>} */
  const chosen = { view };
  for (const name of CHOSEN) if (name in settings) chosen[name] = settings[name];
  if ("block_size" in chosen) chosen.auto = chosen.block_size === "auto";
  if (chosen.auto) delete chosen.block_size;
  return names.map((name, i) => (name in chosen ? chosen[name] : now[i]));
}

/**
 * The race view stands in the first tab; what is asked elsewhere is shown there.
 * @param {Element} target
 */
function showLive(target) {
  const race = document.getElementById("race");
  if (!race) return;
  if (!race.contains(target)) tabOf("Live")?.click();
  if (race.getBoundingClientRect().top < 0) race.scrollIntoView();
}

/**
 * Called by the hidden button: what it sends, then the values of the controls.
 * @param {string[]} names
 * @param {unknown[]} now
 */
export const asked = (names, now) => (wanted ? [wanted.asked, ...filled(wanted, names, now)] : ["", ...now]);

export function mountAsks() {
  document.addEventListener("mars-ask", ({ detail, target }) => {
    if (!ANSWERED.includes(detail.kind)) return;
    const view = target instanceof Element && target.lineView;
    if (!view || !view.run) return;
    wanted = orderOf(detail, view.run);
    branch(view.run);
    showLive(target);
    document.getElementById("ask")?.click();
  });
}
