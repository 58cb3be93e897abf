// Page-level behaviour that no single component has: requests from views, links and keyboard shortcuts. Ctrl or Cmd
// with Enter in a prompt runs; Escape anywhere stops. On a phone, running scrolls to the results.

import { NO_COPY, attribute, button, copied, find, targetOf, whenThere } from "../../core/dom.js";
import { headerOf, isFirst, mainLane } from "../../core/folds.js";
import { helpFor } from "../../core/help.js";
import { factsOf, nameOf } from "../../core/methods.js";
import { METHODS, SETTINGS } from "../../core/table.js";
import { mountTabs, openView } from "../../core/tabs.js";
import { SHARE } from "../../core/texts.js";
import { openLink, queryOf } from "../../export/link.js";
import { PINS, mountPins } from "../compare/pin.js";
import { mountBoxes } from "./boxes.js";
import { checkpointBefore, mountMemory, remember, restore } from "./memory.js";
import { branch, questionOnShow, runFirst, turn, wantedOf } from "../conversation/view.js";

/** @type {Record<string, string>} */
const RUNS = {
  run: "stage",
  "batch-run": "batch-stage",
  "grid-run": "grid-stage",
  "load-run": "load-stage",
  "stability-run": "stability-stage",
}; // button -> the stage of its results
/** @type {Record<string, string>} */
const PROMPTS = {
  prompt: "run",
  "batch-prompts": "batch-run",
  "grid-prompt": "grid-run",
  "stability-prompt": "stability-run",
};

// Called in the document's head. The functions that the page's own scripts call become part of `mars`.
export function mountPage() {
  mountApi();
  mountAsks();
  for (const place of Object.keys(FOLDS))
    whenThere(
      () => document.getElementById(`${place}go`),
      (row) => fold(row, place),
    );
  whenThere(() => document.querySelector(VIEWS.live), mountStates);
  mountHelp();
  mountPins();
  mountLens();
  mountKeys();
  mountBoxes();
  mountLink();
  mountMemory();
  mountTabs();
  Object.assign(window.mars, {
    answers: [...ANSWERED, ...PINS],
    asked,
    giveBack,
    remember,
    restore,
    checkpointBefore,
    share,
    shareSetup,
    turn,
    runFirst,
    prompt: mountPrompt(),
  });
}

const SETTLES = 10_000; // milliseconds until what is above a stage has folded, including a server response
const ACTS = ["wheel", "touchstart", "pointerdown", "keydown"];

// Keeps a stage at the upper edge of the window while what is above it folds, until the visitor does something.
/** @param {Element} stage */
function bringIntoSight(stage) {
  const place = () => stage.scrollIntoView();
  const timer = setInterval(place, 200);
  const stop = () => clearInterval(timer);
  place();
  setTimeout(stop, SETTLES);
  for (const act of ACTS) addEventListener(act, stop, { once: true, passive: true });
}

function mountKeys() {
  /** @param {string} id */
  const press = (id) => document.getElementById(id)?.click();
  /** @type {(event: Event, ids: Record<string, string>) => string | undefined} */
  const around = (event, ids) =>
    Object.keys(ids).find((id) => event.target instanceof Element && targetOf(event).closest(`#${id}`));

  // Running scrolls to the lanes if they are below the controls.
  document.addEventListener("click", (event) => {
    const pressed = around(event, RUNS);
    const stage = pressed && document.getElementById(RUNS[pressed]);
    if (stage && window.innerWidth < 900) bringIntoSight(stage);
  });

  // On a phone the prompt's box shows one line, the first, while it does not have the focus.
  document.addEventListener("focusout", ({ target }) => {
    if (target instanceof HTMLTextAreaElement && target.closest("#bar")) target.scrollTop = 0;
  });

  document.addEventListener("keydown", (event) => {
    const prompt = around(event, PROMPTS);
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && prompt) {
      event.preventDefault();
      press(PROMPTS[prompt]);
    }
    const isListOpen = event.target instanceof Element && targetOf(event).getAttribute("aria-expanded") === "true";
    // Gradio leaves a list open after Tab, on top of what follows; Escape closes it.
    if (event.key === "Tab" && isListOpen)
      targetOf(event).dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
    if (event.key === "Escape" && !event.defaultPrevented && !isListOpen)
      ["stop", "batch-stop", "grid-stop", "load-stop", "stability-stop"].forEach(press);
  });
}

const MOST_CHARACTERS = 8000; // maximum length of a URL that all servers on the way accept

/**
 * Returns the link. base: the page without a query, "" for this one. Names and values of controls in the same order.
 * @param {string} base
 * @param {string[]} names
 * @param {unknown[]} values
 */
function linkFor(base, names, values) {
  const place = names.indexOf("prompt");
  const chosen = values.map((value, i) => (i === place ? value || questionOnShow() : value)); // in a conversation the box is empty
  return `${base || location.origin + location.pathname}?${queryOf(names, chosen)}`;
}

/** @type {((sentence: string) => void) | null} */
let toldOfSetup = null;

// Copies a link to the controls' values; returns what to tell the visitor. The values come from the page's hidden button.
function shareSetup() {
  return new Promise((resolve) => {
    toldOfSetup = resolve;
    document.getElementById("share")?.click();
  });
}

/**
 * Called by the button. Returns no remark: the menu shows what happened.
 * @param {string} base
 * @param {string[]} names
 * @param {unknown[]} values
 */
async function share(base, names, values) {
  const sentence = await copiedSetup(base, names, values);
  toldOfSetup?.(sentence);
  toldOfSetup = null;
  return "";
}

/**
 * @param {string} base
 * @param {string[]} names
 * @param {unknown[]} values
 */
async function copiedSetup(base, names, values) {
  const link = linkFor(base, names, values);
  if (link.length > MOST_CHARACTERS) return SHARE.tooLong;
  if (await copied(link)) return SHARE.setupCopied;
  return NO_COPY;
}

/** @type {Record<string, string>} */
const VIEWS = { live: "#race .mars-race", grid: "#grid .mars-grid", stability: "#stability .mars-stability" };
const DESK = "#desk"; // the controls next to the race view

// Returns the function that the page calls whenever a prompt's box changes. Informs the views with results what the box
// contains, so that they can show when it is another prompt; and that a control was used, so that they remove an old
// error message.
function mountPrompt() {
  /** @type {Record<string, string>} */
  const wanted = {};
  /** @param {string} place */
  const tell = (place) =>
    whenThere(
      () => document.querySelector(VIEWS[place])?.lineView,
      (view) => view.want(place === "live" ? wantedOf(wanted[place]) : wanted[place]),
    );
  /** @param {Event} given */
  const acted = ({ target }) => {
    if (target instanceof Element && target.closest(DESK)) document.querySelector(VIEWS.live)?.lineView?.dismiss();
  };
  for (const act of ["input", "change", "click"]) document.addEventListener(act, acted);
  /**
   * @param {string} place
   * @param {string} prompt
   */
  return (place, prompt) => {
    wanted[place] = prompt;
    tell(place);
  };
}

/** @type {Record<string, { text: string, label: string, controls: string }>} */
const FOLDS = {
  "": { text: "τ · B", label: "Controls: τ, B, slow motion", controls: "knobs" },
  ...Object.fromEntries(
    ["batch-", "grid-", "load-", "stability-"].map((place) => [
      place,
      { text: "Settings", label: "Settings", controls: `${place}desk` },
    ]),
  ),
}; // by the prefix of a tab's element ids

/**
 * On a phone the controls are in a bar at the bottom edge, folded except Run and Stop. A button opens the rest, and
 * running folds it again. Wider pages show everything and have no such button (page.css).
 * @param {HTMLElement} row
 * @param {string} place
 */
function fold(row, place) {
  const live = /** @type {HTMLElement} */ (document.getElementById(`${place}live`));
  const { text, label, controls } = FOLDS[place];
  const given = { id: `${place}fold`, class: "fold", "aria-label": label, "aria-controls": controls };
  const opener = button(given, text, () => open(live.dataset.knobs !== "open"));
  /** @param {boolean} isOpen */
  const open = (isOpen) => {
    live.dataset.knobs = isOpen ? "open" : "folded";
    attribute(opener, { "aria-expanded": isOpen });
  };
  open(false);
  row.addEventListener("click", (event) => {
    if (targetOf(event).closest(`#${place}run`)) open(false);
  });
  row.append(opener);
}

// Selectors of running views, by the row with their Run and Stop.
const RUNNING = {
  go: "#race .mars-race:is([data-state=running], [data-state=slow], [data-state=waiting])",
  "batch-go": "#batch .mars-batch:is([data-phase=running], [data-phase=waiting])",
  "grid-go": "#grid .mars-grid:is([data-phase=running], [data-phase=waiting])",
  "load-go": "#load .mars-load:is([data-phase=running], [data-phase=waiting])",
  "stability-go": "#stability .mars-stability:is([data-phase=running], [data-phase=waiting])",
};

// Writes the views' state as data attributes for the style sheet: what is running.
function mountStates() {
  /** @type {(id: string, name: string, selector: string) => void} */
  const mark = (id, name, selector) => {
    const [element, state] = [document.getElementById(id), String(Boolean(document.querySelector(selector)))];
    if (element && element.dataset[name] !== state) element.dataset[name] = state;
  };
  const look = () => {
    for (const [id, selector] of Object.entries(RUNNING)) mark(id, "running", selector);
  };
  look();
  const told = ["data-state", "data-phase"];
  new MutationObserver(look).observe(document.body, { subtree: true, attributeFilter: told });
}

const PLACES = ["tau", "block_size", "auto_objective", "lossless", "pace", "presets"]; // ids of controls with a help button

// Adds a help button ⓘ to each control. Gradio builds its controls late and rebuilds some (B, when the checkpoint
// changes), so this checks the controls again at each change.
function mountHelp() {
  whenThere(
    () => document.querySelector(DESK),
    (desk) => {
      place(desk);
      new MutationObserver(() => place(desk)).observe(desk, { childList: true, subtree: true });
    },
  );
}

/** @param {Element} desk */
function place(desk) {
  for (const name of PLACES) {
    const control = desk.querySelector(`#${name}`);
    if (!control || control.querySelector(".help")) continue;
    const help = helpFor(name);
    control.append(help);
    for (const input of control.querySelectorAll("input")) input.setAttribute("aria-describedby", find(help, "p").id);
  }
}

// Shows the run that the page's link contains, as soon as the view exists.
function mountLink() {
  if (!location.hash) return;
  const { hash } = location;
  whenThere(
    () => document.querySelector(VIEWS.live)?.lineView,
    (view) => openLink(view, hash).then((value) => value && fillIn(view, value)),
  );
}

// The τ slider of the Live tab also sets the race view's lens, which applies while no run is in progress.
function mountLens() {
  document.addEventListener("input", (event) => {
    if (!(event.target instanceof HTMLInputElement) || !targetOf(event).closest("#tau")) return;
    const { value } = event.target;
    if (value !== "") document.querySelector("#race .mars-race")?.lineView?.lens?.set(Number(value));
  });
}

// Opens the API page if the address has ?view=api. Gradio 6 then treats that page as open, but only loads it when the
// footer button is pressed: the first press closes it, the second opens it.
function mountApi() {
  if (new URLSearchParams(location.search).get("view") !== "api") return;
  const look = () => /** @type {HTMLElement | null} */ (document.querySelector("footer button.show-api"));
  whenThere(look, (opener) => {
    opener.click();
    opener.click();
  });
}

// Requests from a view: another run of what it shows, or a branch from one of its tokens. The server validates the
// settings.
//
const ANSWERED = ["run", "branch"];
const CHOSEN = /** @type {(keyof Settings)[]} */ (Object.keys(SETTINGS)).filter(
  (name) => SETTINGS[name].label && name !== "max_new_tokens",
);
const COMMON = CHOSEN.filter((name) => SETTINGS[name].isCommon); // they apply to all methods

/** @type {Order | null} */
let ordered = null;

/**
 * Returns the requested run: prompt, checkpoint and given tokens of the displayed run, settings, lanes.
 * @param {AskDetail} given
 * @param {Run} run
 */
function orderOf({ kind, lane, token, id, settings }, run) {
  const main = mainLane(run);
  const from = kind === "branch" ? laneOf(run, lane) : main;
  const behind = kind === "branch" ? [...from.tokens.slice(0, token).map((each) => each.id), id] : [];
  const { checkpoint, prompt, system } = headerOf(from);
  const names = run.lanes.map((each) => each.name).filter((name) => name in METHODS);
  return {
    checkpoint,
    asked: JSON.stringify({
      ...{ prompt, checkpoint, system, given: [...from.givenIds(), ...behind] },
      history: Object.fromEntries(run.lanes.map((each) => [each.name, each.header?.history || []])),
      ...(kind === "branch" ? raced(from, main, token) : {}),
    }),
    settings: { ...(main.isAr ? {} : obeyed(main)), ...settings },
    view: kind === "branch" || run.lanes.some(isFirst) ? null : names,
  };
}

/**
 * Describes where a branch leaves a run.
 * @param {Run} run
 * @param {AskDetail} given
 */
function forkOf(run, { lane, token, id }) {
  const from = laneOf(run, lane);
  const { tokens } = from;
  return {
    token: token + 1,
    taken: from.tokenName(id),
    instead: tokens[token] ? from.tokenName(tokens[token].id) : "",
  };
}

/**
 * Returns the requested lane of a run, or its main one.
 * @param {Run} run
 * @param {AskDetail["lane"]} lane
 */
function laneOf(run, lane) {
  const name = typeof lane === "string" ? lane : lane.name;
  return run.lanes.find((each) => each.name === name) || mainLane(run);
}

/**
 * A branch by the run's main method is compared with the token that it replaces, unless that token ended the text.
 * @param {Lane} from
 * @param {Lane} main
 * @param {number} place
 */
function raced(from, main, place) {
  const token = from.tokens[place];
  const history = { [main.method]: from.header?.history || [] };
  const instead = token && !token.isEnd ? token.id : null;
  return { view: [main.method], history, instead };
}

/**
 * Returns the settings that the lane's method uses; the other controls of the page do not change.
 * @param {Lane} lane
 */
function obeyed({ settings, facts }) {
  const known = [...facts.obeys, ...COMMON].filter((name) => settings && name in settings);
  return Object.fromEntries(known.map((name) => [name, settings?.[name]]));
}

/**
 * Returns the run of a method that was measured elsewhere: it has its own prompt and checkpoint.
 * @param {WayDetail} given
 * @returns {Order}
 */
const wayOrder = ({ prompt, checkpoint, settings, limit, isKept }) => ({
  checkpoint,
  isKept,
  asked: JSON.stringify({ prompt, checkpoint, given: [], history: "", max_new_tokens: limit }),
  settings: factsOf(settings).obeys.length ? settings : {},
  view: settings.method === "ar" ? ["ar"] : [nameOf(settings), "ar"],
});

/**
 * Returns the new values of the page's controls, in the order of their names; the others stay as they are.
 * @param {Order} given
 * @param {string[]} names
 * @param {unknown[]} now
 */
function filled({ checkpoint, settings, view }, names, now) {
  /** @type {Record<string, unknown>} */
  const chosen = { checkpoint, ...(view ? { view } : {}) };
  for (const name of CHOSEN) if (name in settings) chosen[name] = settings[name];
  if ("block_size" in chosen) chosen.auto = chosen.block_size === "auto";
  if (chosen.auto) delete chosen.block_size;
  return names.map((name, i) => (name in chosen ? chosen[name] : now[i]));
}

/**
 * Shows the race view, which is in the first tab.
 * @param {Element} target
 */
function showLive(target) {
  const race = document.getElementById("race");
  if (!race) return;
  if (!race.contains(target)) openView("live");
  if (race.getBoundingClientRect().top < 0) race.scrollIntoView();
}

/**
 * Called when the race view triggers its event. Returns the request and the values of the controls.
 * @param {string[]} names
 * @param {unknown[]} now
 */
function asked(names, now) {
  if (!ordered) {
    const values = kept || now;
    kept = null;
    return ["", ...values];
  }
  if (ordered.isKept) kept ??= now;
  return [ordered.asked, ...filled(ordered, names, now)];
}

/** @type {unknown[] | null} */
let kept = null; // the controls before the tour changed them

// Sets the controls back to these values, without running anything. The prompt's box shows the prompt of the run that
// stays on the page.
function giveBack() {
  if (!kept) return;
  ordered = null;
  start();
  const { run } = document.querySelector(VIEWS.live)?.lineView ?? {};
  const { header } = run?.lanes.length ? mainLane(run) : { header: null };
  if (header) fillPrompt(header.prompt);
}

function mountAsks() {
  document.addEventListener("mars-ask", ({ detail, target }) => {
    if (!(target instanceof Element)) return;
    if (detail.kind === "way") {
      if (!detail.isKept) fillPrompt(detail.prompt);
      return ask(wayOrder(detail), target);
    }
    if (detail.kind === "replay") return replay(detail.value, target);
    const { lineView: view } = target;
    if (!ANSWERED.includes(detail.kind) || !view || !view.run) return;
    const order = orderOf(detail, view.run);
    branch(view.run, detail.kind === "branch" ? forkOf(view.run, detail) : null);
    ask(order, target);
  });
}

/**
 * Shows a finished run in the Live tab, with all its panels.
 * @param {string} value
 * @param {Element} target
 */
function replay(value, target) {
  const view = document.querySelector(VIEWS.live)?.lineView;
  view?.read(value);
  if (view) fillIn(view, value);
  showLive(target);
}

/** @param {string} prompt */
function fillPrompt(prompt) {
  const box = /** @type {HTMLTextAreaElement | null} */ (document.querySelector("#prompt textarea"));
  if (!box) return;
  box.value = prompt;
  box.dispatchEvent(new Event("input", { bubbles: true }));
}

/**
 * Sets the prompt's box and the controls to a run, so that Run repeats it, once the view has read the run's header; not
 * if the view shows something else by then.
 * @param {NonNullable<Element["lineView"]>} view
 * @param {string} value
 */
function fillIn(view, value) {
  const { run: id } = JSON.parse(value.split("\n", 1)[0]);
  const read = () => {
    const { latest, run } = view;
    if (latest !== value) return { run: null };
    return run?.id === String(id) && mainLane(run).header ? { run } : null;
  };
  whenThere(read, ({ run }) => {
    if (!run) return;
    const main = mainLane(run);
    fillPrompt(headerOf(main).prompt);
    ordered = { ...orderOf({ kind: "run", lane: main, token: 0, id: 0, settings: {} }, run), asked: "" };
    start();
  });
}

/**
 * @param {Order} order
 * @param {Element} target
 */
function ask(order, target) {
  ordered = order;
  showLive(target);
  start();
}

// Triggers the event of the page's race view (app/ui/views.py), which sets the controls and runs the request.
const start = () => /** @type {(() => void) | undefined} */ (window.mars.start)?.();
