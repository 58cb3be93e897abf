// Shows the origin of a result: prompt, settings of the whole run, conversation.

import { joinBytes, withoutBidi } from "../core/bytes.js";
import { make, put } from "../core/dom.js";
import { isFirst, mainLane } from "../core/folds.js";
import { counted, joined, short } from "../core/words.js";
import { COMMON } from "../core/methods.js";
import { laneText } from "./settings.js";

/** @type {Record<string, string>} */
const FOREIGN = { true: "The prompt has changed. Press Run.", settings: "The settings have changed. Press Run." };

/** @param {Settings} settings */
export function onceText(settings) {
  const parts = [`limit ${counted(settings.max_new_tokens, "token")}`];
  if (settings.temperature) parts.push(`temperature ${short(settings.temperature)}`, `seed ${settings.seed}`);
  return parts.join(" · ");
}

const MOST_CHARACTERS = 120; // maximum characters of a system prompt that are shown

/** @param {Lane} main @param {HeaderEvent} header */
function runText(main, { settings, system }) {
  const text = system && system.length > MOST_CHARACTERS ? `${system.slice(0, MOST_CHARACTERS)}…` : system;
  return joined(
    !main.isAr && laneText(main),
    settings && onceText(settings),
    text && `system prompt “${withoutBidi(text)}”`,
  );
}

export class Asked {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    element.translate = false;
    const place = { tabindex: 0, role: "group", "aria-label": "Prompt of this result" }; // scrollable by keyboard if it is long
    this.prompt = make("p", { class: "rv-prompt", ...place });
    this.recorded = make("b", "rv-recorded-with");
    this.settings = make("p", "rv-once rv-num");
    this.foreign = make("p", "rv-foreign");
    this.context = new Context();
    element.append(this.context.element, this.recorded, this.prompt, this.settings, this.foreign);
    this.draw(null);
  }

  /**
   * Draws the prompt of a result. prompt: null if there is no result. settings: a description of the settings. wanted:
   * the text of the page's prompt box, null if there is no such box. recorded: the checkpoint, if the result is the
   * recording with which the page opens, so another prompt is expected. hasMoved: whether the page's controls would now
   * start a run with other settings.
   * @param {string | null} prompt @param {string} [settings] @param {string | null} [wanted] @param {string} [recorded]
   * @param {boolean} [hasMoved]
   */
  draw(prompt, settings = "", wanted = null, recorded = "", hasMoved = false) {
    const isOther = Boolean(prompt) && wanted !== null && wanted !== prompt;
    const foreign = !isOther && prompt && hasMoved ? "settings" : String(isOther);
    this.element.hidden = prompt === null;
    this.element.dataset.foreign = recorded ? "opening" : foreign;
    put(this.recorded, recorded && "Prompt:");
    put(this.prompt, prompt || "");
    put(this.settings, settings);
    put(this.foreign, recorded ? "" : (FOREIGN[foreign] ?? ""));
  }

  /**
   * Draws the prompt of a race from the first header that has arrived. Until a header arrives, reserves space for the
   * prompt, so that the page does not jump.
   * @param {Lane[]} lanes @param {string | null} wanted @param {string} recorded
   * @param {Record<string, any> | null} controls
   */
  drawRun(lanes, wanted, recorded, controls) {
    const read = lanes.find((lane) => lane.header);
    const header = read?.header;
    this.context.draw(read);
    const text = header ? runText(mainLane({ lanes }), header) : "";
    const isOver = lanes.length > 0 && lanes.every(({ end }) => end);
    const hasMoved = controls !== null && isOver && isOtherRun(lanes, controls);
    this.draw(lanes.length ? header?.prompt || "" : null, text, wanted, recorded, hasMoved);
  }
}

/**
 * Returns whether a method other than MARS runs with another value than the control's (`settings_for` in
 * app/ui/controls.py).
 * @param {string} name @param {MethodFacts} facts @param {Record<string, any>} controls
 */
function isReplaced(name, { obeys, isExact }, controls) {
  if (obeys.includes("lossless")) return false;
  if (name === "block_size") return controls.block_size === "auto";
  return !isExact && (name === "tau" ? controls.lossless : name === "repetition_penalty");
}

/**
 * Returns whether the page's controls differ from the checkpoint, the lanes and the settings of a finished run.
 * @param {Lane[]} lanes
 * @param {Record<string, any>} controls values by the names of settings
 */
export function isOtherRun(lanes, controls) {
  const main = mainLane({ lanes });
  const { facts, header } = main;
  const settings = /** @type {Record<string, unknown> | null} */ (main.settings);
  if (!header || !settings) return false;
  const names = (/** @type {string[]} */ methods) => String([...new Set(methods)].sort()); // a run of Review can repeat one
  const isOtherRace = !lanes.some(isFirst) && names(controls.view) !== names(lanes.map(({ method }) => method));
  const compared = [...facts.obeys, ...COMMON].filter((name) => name in settings && name in controls);
  const moved = compared.filter((name) => !isReplaced(name, facts, controls));
  return (
    isOtherRace || controls.checkpoint !== header.checkpoint || moved.some((name) => controls[name] !== settings[name])
  );
}

/** @param {HeaderEvent | null | undefined} header */
export function contextText(header) {
  const [num, out] = [header?.history?.length || 0, header?.num_left_out || 0];
  if (!num && !out) return "";
  const turns = out === 1 ? "The oldest turn" : `The oldest ${counted(out, "turn")}`;
  const missing = out ? ` ${turns} did not fit and ${out === 1 ? "was" : "were"} left out.` : "";
  return `Turn ${num + out + 1} of a conversation.${missing}`;
}

// Shows the conversation of a result: the number of the turn, the earlier turns, and how many turns did not fit.
class Context {
  constructor() {
    this.summary = make("summary");
    this.turns = make("ol", "rv-earlier");
    this.element = make("details", { class: "rv-context", hidden: "" }, this.summary, this.turns);
    /** @type {Lane | undefined} */
    this.lane = undefined;
    this.element.addEventListener("toggle", () => this.fill());
  }

  /** @param {Lane | undefined} lane a lane whose header has arrived */
  draw(lane) {
    if (lane === this.lane) return;
    this.lane = lane;
    const text = contextText(lane?.header);
    this.element.hidden = !text;
    this.element.open = false;
    put(this.summary, text);
  }

  // Fills the list of earlier turns when it is opened: the header contains their answers as tokens, which are decoded
  // here.
  fill() {
    const { lane } = this;
    const turns = (this.element.open && lane?.header?.history) || [];
    const rows = turns.map(({ prompt, tokens }) => {
      const bytes = tokens.map((id) => /** @type {Lane} */ (lane).bytes(id));
      const answer = new TextDecoder().decode(bytes.reduce(joinBytes, new Uint8Array(0)));
      return make("li", "", make("p", "rv-said", withoutBidi(prompt)), make("p", "rv-answered", withoutBidi(answer)));
    });
    this.turns.replaceChildren(...rows);
  }
}
