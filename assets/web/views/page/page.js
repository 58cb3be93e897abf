// Behaviour of the page as a whole: requests from views, links, and keys. Ctrl+Enter or Cmd+Enter in a prompt starts a
// run; Escape stops it. On Live, R starts a run, 1 to 4 pick an example, and F switches to big type; the player's keys
// are in views/race/player.js. On a phone, starting a run scrolls to the results.

import { NO_COPY, attribute, copied, isModified, make, promptBox, targetOf, whenThere } from "../../core/dom.js";
import { headerOf, isFirst, mainLane } from "../../core/folds.js";
import { CHOSEN, COMMON, factsOf, nameOf, tauAfter } from "../../core/methods.js";
import { METHODS } from "../../core/table.js";
import { forget } from "../../core/storage.js";
import { mountTabs, openView } from "../../core/tabs.js";
import { SHARE } from "../../core/texts.js";
import { openLink, queryOf } from "../../export/link.js";
import { mountPins } from "../review/pins.js";
import { mountBoxes } from "./boxes.js";
import { checkpointBefore, mountMemory, remember, restore } from "./memory.js";
import { questionOnShow, runValues as conversationValues, wantedOf } from "../conversation/view.js";

/** @type {Record<string, string>} */
const RUNS = {
  run: "race",
  "throughput-run": "throughput",
  "grid-run": "grid",
}; // id of a Run button -> id of the element with its results
/** @type {Record<string, string>} */
const PROMPTS = {
  prompt: "run",
};

// Mounts the page's behaviour; called in the document's head. Functions that other scripts of the page call are added
// to window.mars.
export function mountPage() {
  mountApi();
  mountAsks();
  whenThere(() => document.querySelector(VIEWS.live), mountStates);
  mountPins();
  mountPopUps();
  mountRefusals();
  mountReasons();
  mountKeys();
  mountLiveKeys();
  mountPace();
  mountBoxes();
  mountLink();
  mountMemory();
  mountTabs();
  Object.assign(window.mars, {
    answers: [...ANSWERED, "pin"],
    valuesOfRun,
    runRequested,
    giveBack,
    reset,
    restore,
    checkpointBefore,
    share,
    shareSetup,
    runValues,
    tauAfter,
    ...mountWishes(),
  });
}

const SETTLES = 10_000; // milliseconds after which the controls above a stage have collapsed, even on a slow server
const ACTS = ["wheel", "touchstart", "pointerdown", "keydown"];

// Keeps the results (a view's stage) at the top of the window while the controls above the stage collapse, until the
// visitor scrolls, types or presses something.
/** @param {Element} stage */
function bringIntoSight(stage) {
  const scroll = () => stage.scrollIntoView();
  const timer = setInterval(scroll, 200);
  const stop = () => clearInterval(timer);
  scroll();
  setTimeout(stop, SETTLES);
  for (const act of ACTS) addEventListener(act, stop, { once: true, passive: true });
}

/** @type {Record<string, string>} */
const PREFIXES = { race: "", throughput: "throughput-", grid: "grid-" }; // of the ids of a view's controls

// Shows the error of an invalid control next to it, or next to Run if the control is hidden, until its value changes.
function mountRefusals() {
  const forget = () => document.querySelectorAll(".refused").forEach((shown) => shown.remove());
  document.addEventListener("mars-refused", ({ detail: { field, text }, target }) => {
    const view =
      target instanceof Element ? (Object.keys(PREFIXES).find((id) => target.closest(`#${id}`)) ?? "race") : "race";
    const [own, shared] = [PREFIXES[view] + field, field].map((id) => document.getElementById(id));
    const control = own?.checkVisibility() ? own : shared;
    const place = control?.checkVisibility()
      ? control
      : document.getElementById(view === "race" ? "prompt" : `${PREFIXES[view]}go`);
    forget();
    place?.append(make("p", { class: "refused", role: "alert" }, text));
  });
  document.addEventListener("input", ({ target }) => {
    if (target instanceof Element && target.closest(":has(> .refused)")) forget();
  });
  document.addEventListener("click", (event) => {
    if (Object.keys(RUNS).some((id) => targetOf(event).closest(`#${id}`))) forget();
  });
}

// Gives each method that the model cannot run the reason as its title.
function mountReasons() {
  document.addEventListener("pointerover", ({ target }) => {
    const lane = target instanceof Element && target.closest("#view label");
    const [view, input] = lane ? [lane.closest("#view"), lane.querySelector("input")] : [];
    if (!lane || !view || !input) return;
    const isMissing = [input.name, input.value].some((name) => view.classList.contains(`without-${name}`));
    const reason = (isMissing && view.querySelector(".info-text")?.textContent?.trim()) || "";
    attribute(lane, { title: reason });
  });
}

function mountKeys() {
  /** @param {string} id */
  const press = (id) => document.getElementById(id)?.click();
  /** @type {(event: Event, ids: Record<string, string>) => string | undefined} */
  const around = (event, ids) =>
    Object.keys(ids).find((id) => event.target instanceof Element && targetOf(event).closest(`#${id}`));

  // On narrow pages, where the results are below the controls, starting a run scrolls to the results.
  document.addEventListener("click", (event) => {
    const pressed = around(event, RUNS);
    const stage = pressed && document.getElementById(RUNS[pressed]);
    if (stage && window.innerWidth < 900) bringIntoSight(stage);
  });

  document.addEventListener("keydown", (event) => {
    const prompt = around(event, PROMPTS);
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && prompt) {
      event.preventDefault();
      press(PROMPTS[prompt]);
    }
    const isListOpen = event.target instanceof Element && targetOf(event).getAttribute("aria-expanded") === "true";
    // Gradio leaves a dropdown list open after Tab, where it covers other controls; Escape closes the list.
    if (event.key === "Tab" && isListOpen)
      targetOf(event).dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
    if (event.key === "Escape" && !event.defaultPrevented && !isListOpen)
      ["stop", "throughput-stop", "grid-stop"].forEach(press);
  });
}

// Closes open pop-ups: after a press outside them or on one of their examples, and with Escape.
function mountPopUps() {
  /** @type {(isClosed: (popUp: Element) => boolean) => boolean} */
  const close = (isClosed) => {
    const openers = [...document.querySelectorAll(".pop-up > button.open")].filter(
      (opener) => opener.checkVisibility() && isClosed(/** @type {Element} */ (opener.parentElement)),
    );
    for (const opener of openers) /** @type {HTMLElement} */ (opener).click();
    return openers.length > 0;
  };
  document.addEventListener("click", (event) => {
    const target = targetOf(event);
    // More also lists the other lanes, which are outside it.
    if (!event.isTrusted || !target.isConnected || target.closest("#view")) return;
    close((popUp) => !popUp.contains(target) || Boolean(target.closest(".chip")));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || targetOf(event).closest?.("dialog")) return;
    if (targetOf(event).getAttribute?.("aria-expanded") === "true") return; // closes its own list
    if (close(() => true)) event.preventDefault();
  });
}

const FIELDS =
  "input:not([type=range], [type=radio], [type=checkbox]), textarea, select, [contenteditable], [role=listbox], dialog";

// Mounts the keys of Live: R, 1 to 4 and F.
function mountLiveKeys() {
  document.addEventListener("keydown", (event) => {
    const target = targetOf(event);
    const isLive = document.getElementById("live")?.offsetParent;
    if (!isLive || event.defaultPrevented || isModified(event) || document.querySelector("dialog[open]")) return;
    if (target instanceof Element && target.closest(FIELDS)) return;
    const key = event.key.toLowerCase();
    const chips = [...document.querySelectorAll("#examples .chip")].filter((chip) => chip.checkVisibility());
    if (key === "r") document.getElementById("run")?.click();
    else if (key === "f") document.documentElement.toggleAttribute("data-big");
    else if (/^[1-4]$/.test(key)) /** @type {HTMLElement | undefined} */ (chips[Number(key) - 1])?.click();
    else return;
    event.preventDefault();
  });
}

// Sets the hidden field of slow motion when the visitor chooses a speed in the player.
function mountPace() {
  document.addEventListener("mars-pace", ({ detail, target }) => {
    const isLive = target instanceof Element && target.closest("#race");
    const field = /** @type {HTMLInputElement | null} */ (document.querySelector("#pace input"));
    if (!isLive || !field) return;
    field.value = String(detail);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

// Opens the page as a new visitor sees it.
function reset() {
  forget("sessionStorage");
  location.assign(location.pathname);
}

const MOST_CHARACTERS = 8000; // maximum length of a URL that common servers and proxies accept

/**
 * Returns a link that contains the values of the controls. base: address of the page without a query, "" for this page.
 * names and values are in the same order.
 * @param {string} base
 * @param {string[]} names
 * @param {unknown[]} values
 */
function linkFor(base, names, values) {
  const promptAt = names.indexOf("prompt");
  // In a conversation the prompt box may be empty; the link then contains the displayed question.
  const chosen = values.map((value, i) => (i === promptAt ? value || questionOnShow() : value));
  return `${base || location.origin + location.pathname}?${queryOf(names, chosen)}`;
}

/** @type {((sentence: string) => void) | null} */
let resolveSetup = null;

// Copies a link that contains the values of the controls. Returns a promise of a sentence for the visitor. Gradio
// passes the values to `share` when the hidden button "share" is clicked.
function shareSetup() {
  return new Promise((resolve) => {
    resolveSetup = resolve;
    document.getElementById("share")?.click();
  });
}

/**
 * Copies the link and resolves the promise of shareSetup. Called by the hidden button. Returns "" because the Share
 * menu, not the button, shows the result.
 * @param {string} base
 * @param {string[]} names
 * @param {unknown[]} values
 */
async function share(base, names, values) {
  const sentence = await copiedSetup(base, names, values);
  resolveSetup?.(sentence);
  resolveSetup = null;
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
const VIEWS = { live: "#race .mars-race", grid: "#grid .mars-grid" };
const DESK = "#desk"; // the controls next to the race view

// Returns the functions that the page calls whenever a prompt box or another control changes. They pass the prompt and
// the controls to the view, which reports if its results belong to others. Also makes the race view remove an old error
// message when a control is used.
function mountWishes() {
  /** @type {Record<string, string>} */
  const wanted = {};
  /** @type {Record<string, unknown> | null} */
  let controls = null;
  /** @param {string} place */
  const informView = (place) =>
    whenThere(
      () => document.querySelector(VIEWS[place])?.lineView,
      (view) => {
        const prompt = place in wanted ? wanted[place] : view.wanted;
        if (place === "live") view.want(prompt === null ? null : wantedOf(prompt), controls);
        else view.want(prompt);
      },
    );
  /** @param {Event} given */
  const acted = ({ target }) => {
    if (target instanceof Element && target.closest(DESK)) document.querySelector(VIEWS.live)?.lineView?.dismiss();
  };
  for (const act of ["input", "change", "click"]) document.addEventListener(act, acted);
  /** @type {(place: string, prompt: string) => void} */
  const prompt = (place, text) => {
    wanted[place] = text;
    informView(place);
  };
  document.addEventListener("mars-mount", ({ target }) => {
    if (target instanceof Element && target.matches(VIEWS.grid)) prompt("grid", promptBox()?.value ?? "");
  });
  return {
    prompt,
    /** @type {typeof remember} */
    remember(place, names, values) {
      remember(place, names, values);
      if (place !== "live") return;
      controls = Object.fromEntries(names.map((name, i) => [name, values[i]]));
      informView(place);
    },
  };
}

// Selector of each view while it is running, by the id of the row with its Run and Stop buttons.
const RUNNING = {
  go: "#race .mars-race:is([data-state=running], [data-state=slow], [data-state=waiting])",
  "throughput-go":
    "#throughput .mars-throughput[data-recorded-run=false]:is([data-phase=running], [data-phase=waiting])",
  "grid-go": "#grid .mars-grid:is([data-phase=running], [data-phase=waiting])",
};

// Writes whether each view is running to a data attribute of its row, for the style sheet.
function mountStates() {
  /** @type {(id: string, name: string, selector: string) => void} */
  const mark = (id, name, selector) => {
    const [element, state] = [document.getElementById(id), String(Boolean(document.querySelector(selector)))];
    if (!element || element.dataset[name] === state) return;
    const hasFocus = element.contains(document.activeElement);
    element.dataset[name] = state;
    // Live shows either Run or Stop; the keyboard stays at the one that is shown.
    if (hasFocus && id === "go") document.getElementById(state === "true" ? "stop" : "run")?.focus();
  };
  const update = () => {
    for (const [id, selector] of Object.entries(RUNNING)) mark(id, "running", selector);
  };
  update();
  const attributeFilter = ["data-state", "data-phase"];
  new MutationObserver(update).observe(document.body, { subtree: true, attributeFilter });
}

// Shows the run in the page's link, if it contains one, as soon as the race view exists.
function mountLink() {
  if (!location.hash) return;
  const { hash } = location;
  whenThere(
    () => document.querySelector(VIEWS.live)?.lineView,
    (view) => openLink(view, hash).then((value) => value && fillIn(view, value)),
  );
}

// Opens the API page if the address has ?view=api. With this address, Gradio 6 regards the API page as open, but loads
// it only when the footer button is pressed. The function therefore presses the button twice: once to close the API
// page and once to open it.
function mountApi() {
  if (new URLSearchParams(location.search).get("view") !== "api") return;
  const query = () => /** @type {HTMLElement | null} */ (document.querySelector("footer button.show-api"));
  whenThere(query, (opener) => {
    opener.click();
    opener.click();
  });
}

// The requests that the page accepts from a view: to repeat the displayed run, and to branch from one of its tokens.
// The server validates the settings.
const ANSWERED = ["run", "branch"];

/** @type {Order | null} */
let ordered = null; // the run to which the controls are set next
/** @type {Order["posted"]} */
let requested = null; // what Run posts next instead of the prompt and the conversation of the page

/**
 * Returns the run that a view requests: prompt, checkpoint and given tokens of the displayed run, with settings and
 * lanes.
 * @param {AskDetail} given
 * @param {Run} run
 */
function orderOf({ kind, lane, token, id, settings }, run) {
  const main = mainLane(run);
  const from = kind === "branch" ? laneOf(run, lane) : main;
  const continued = kind === "branch" ? [...from.tokens.slice(0, token).map((emitted) => emitted.id), id] : [];
  const { checkpoint, prompt, system } = headerOf(from);
  const names = new Set(run.lanes.map(({ method }) => method).filter((name) => name in METHODS));
  return {
    checkpoint,
    posted: {
      ...{ prompt, checkpoint, system, given: [...from.givenIds(), ...continued] },
      history: Object.fromEntries(run.lanes.map(({ name, header }) => [name, header?.history || []])),
      ...(kind === "branch" ? { view: [main.method], history: { [main.method]: from.header?.history || [] } } : {}),
    },
    settings: { ...(main.isAr ? {} : obeyed(main)), ...settings },
    view: kind === "branch" || run.lanes.some(isFirst) ? null : [...names],
  };
}

/**
 * Returns the lane of a run that a request names, or the run's main lane.
 * @param {Run} run
 * @param {AskDetail["lane"]} lane
 */
function laneOf(run, lane) {
  const name = typeof lane === "string" ? lane : lane.name;
  return run.lanes.find((candidate) => candidate.name === name) || mainLane(run);
}

/**
 * Returns the settings of a lane that affect how it decodes. The page's controls for other settings keep their values.
 * @param {Lane} lane
 */
function obeyed({ settings, facts }) {
  const known = [...facts.obeys, ...COMMON].filter((name) => settings && name in settings);
  return Object.fromEntries(known.map((name) => [name, settings?.[name]]));
}

/**
 * Returns the run to start when a view requests a method with certain settings, a prompt
 * and a checkpoint.
 * @param {SettingsDetail} given
 * @returns {Order}
 */
const settingsOrder = ({ prompt, checkpoint, settings, limit, isKept }) => ({
  checkpoint,
  isKept,
  posted: { prompt, checkpoint, system: "", given: [], history: [], ...(limit ? { max_new_tokens: limit } : {}) },
  settings: factsOf(settings).obeys.length ? settings : {},
  view: factsOf(settings).isReference ? ["ar"] : [nameOf(settings), "ar"],
});

/**
 * Returns the values of the page's controls for a requested run, in the order of their names. Controls that the run
 * does not set keep their current values.
 * @param {Order} given
 * @param {string[]} names
 * @param {unknown[]} values
 */
function filled({ checkpoint, settings, view }, names, values) {
  /** @type {Record<string, unknown>} */
  const chosen = { checkpoint, ...(view ? { view } : {}) };
  for (const name of CHOSEN) if (name in settings) chosen[name] = settings[name];
  return names.map((name, i) => (name in chosen ? chosen[name] : values[i]));
}

/**
 * Opens the Live tab if the target is outside it, and scrolls up to the race view.
 * @param {Element} target
 */
function showLive(target) {
  const race = document.getElementById("race");
  if (!race) return;
  if (!race.contains(target)) openView("live");
  if (race.getBoundingClientRect().top < 0) race.scrollIntoView();
}

/**
 * Returns the values of the controls for the run of a view, or without one those from before the tour. Called when the
 * event of the race view is triggered.
 * @param {string[]} names
 * @param {unknown[]} values
 */
function valuesOfRun(names, values) {
  if (!ordered) {
    const restored = valuesBefore || values;
    valuesBefore = null;
    return restored;
  }
  if (ordered.isKept) valuesBefore ??= values;
  return filled(ordered, names, values);
}

// Presses Run for the run that a view requests; called when the controls have its values.
function runRequested() {
  requested = ordered?.posted ?? null;
  if (requested) document.getElementById("run")?.click();
}

/**
 * Returns the values that Run posts; called when Run is pressed.
 * @param {string[]} names
 * @param {unknown[]} values
 */
function runValues(names, values) {
  const posted = requested;
  requested = null;
  return posted
    ? names.map((name, i) => (name in posted ? posted[name] : values[i]))
    : conversationValues(names, values);
}

/** @type {unknown[] | null} */
let valuesBefore = null; // values of the controls before the tour changed them

// Restores the values that the controls had before the tour, without starting a run. The prompt box is left as it is;
// the race view shows the prompt of the run that stays on the page.
function giveBack() {
  if (!valuesBefore) return;
  ordered = null;
  start();
}

function mountAsks() {
  document.addEventListener("mars-ask", ({ detail, target }) => {
    if (!(target instanceof Element)) return;
    if (detail.kind === "settings") {
      if (!detail.isKept) fillPrompt(detail.prompt);
      return ask(settingsOrder(detail), target);
    }
    if (detail.kind === "replay") return replay(detail.value, target);
    const { lineView: view } = target;
    if (!ANSWERED.includes(detail.kind) || !view || !view.run) return;
    const order = orderOf(detail, view.run);
    ask(order, target);
  });
}

/**
 * Shows a finished run in the Live tab.
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
  const box = promptBox();
  if (!box) return;
  box.value = prompt;
  box.dispatchEvent(new Event("input", { bubbles: true }));
}

/**
 * Sets the prompt box and the controls to those of a run, so that pressing Run repeats it. Waits until the view has
 * read the run's header, and does nothing if the view shows another run by then.
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
    ordered = { ...orderOf({ kind: "run", lane: main, token: 0, id: 0, settings: {} }, run), posted: null };
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

// Triggers the event of the race view (app/ui/views.py), which calls `valuesOfRun` and `runRequested`.
const start = () => /** @type {(() => void) | undefined} */ (window.mars.start)?.();
