// What a view asks of the page: another run of what it shows, or one that goes on from a token of it.
// Knows the page's ids and the names of its controls; whether their values make sense is the server's affair.

import { tabOf } from "../../core/dom.js";
import { headerOf, mainLane } from "../../core/folds.js";
import { METHODS, SETTINGS } from "../../core/table.js";
import { branch } from "../conversation/view.js";

export const ANSWERED = ["run", "branch"];
const CHOSEN = /** @type {(keyof Settings)[]} */ (Object.keys(SETTINGS)).filter(
  (name) => SETTINGS[name].label && name !== "max_new_tokens",
);
const COMMON = CHOSEN.filter((name) => SETTINGS[name].isCommon); // which act on all methods

/** @type {Order | null} */
let wanted = null;

/**
 * The run that is asked for: prompt, checkpoint and given tokens of the run on show, settings, lanes.
 * @param {AskDetail} given
 * @param {Run} run
 */
function orderOf({ kind, lane, token, id, settings }, run) {
  const main = mainLane(run);
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
    settings: { ...(main.isAr ? {} : obeyed(main)), ...settings },
    view: names.filter((name) => name in METHODS),
  };
}

/**
 * The settings that a lane obeys: those that do not act on it are not told to the page's controls.
 * @param {Lane} lane
 */
function obeyed({ settings, facts }) {
  const known = [...facts.obeys, ...COMMON].filter((name) => settings && name in settings);
  return Object.fromEntries(known.map((name) => [name, settings?.[name]]));
}

/**
 * The run of a way that was measured elsewhere: a prompt and a checkpoint, none of the run on show.
 * @param {WayDetail} given
 * @returns {Order}
 */
const wayOrder = ({ prompt, checkpoint, settings }) => ({
  asked: JSON.stringify({ prompt, checkpoint, given: [], history: "" }),
  settings: settings.method === "ar" ? {} : settings,
  view: settings.method === "ar" ? ["ar"] : [settings.method ?? "mars", "ar"],
});

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
    if (!(target instanceof Element)) return;
    if (detail.kind === "way") return ask(wayOrder(detail), target);
    const { lineView: view } = target;
    if (!ANSWERED.includes(detail.kind) || !view || !view.run) return;
    const order = orderOf(detail, view.run);
    branch(view.run);
    ask(order, target);
  });
}

/**
 * @param {Order} order
 * @param {Element} target
 */
function ask(order, target) {
  wanted = order;
  showLive(target);
  document.getElementById("ask")?.click();
}
