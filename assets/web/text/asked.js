// What a result answers: its own prompt, the settings that no lane's head shows, and its conversation. If the page's
// prompt box has another prompt by now, a note reports it, to avoid confusion. Text only.

import { joinBytes, shown } from "../core/bytes.js";
import { make, put } from "../core/dom.js";
import { counted, joined, short } from "../core/words.js";

const FOREIGN = "The prompt has changed. Press Run.";

/**
 * Describes the settings that apply to the whole run.
 * @param {Settings} settings
 */
export function onceText(settings) {
  const parts = [`limit ${counted(settings.max_new_tokens, "token")}`];
  if (settings.temperature) parts.push(`temperature ${short(settings.temperature)}`, `seed ${settings.seed}`);
  return parts.join(" · ");
}

const MOST_CHARACTERS = 120; // of a system prompt in one line

/**
 * Describes the settings of a run and its system prompt.
 * @param {HeaderEvent} header
 */
function runText({ settings, system }) {
  const text = system && system.length > MOST_CHARACTERS ? `${system.slice(0, MOST_CHARACTERS)}…` : system;
  return joined(settings && onceText(settings), text && `system prompt “${shown(text)}”`);
}

export class Asked {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    const place = { tabindex: 0, role: "group", "aria-label": "Prompt of this result" }; // scrollable by keyboard if it is long
    this.prompt = make("p", { class: "rv-prompt", ...place });
    this.settings = make("p", "rv-once rv-num");
    this.foreign = make("p", "rv-foreign");
    this.context = new Context();
    element.append(this.context.element, this.prompt, this.settings, this.foreign);
    this.draw(null);
  }

  /**
   * prompt: the result's, null if there is none. settings: in words. wanted: text of the box, null for no box.
   * @param {string | null} prompt
   * @param {string} [settings]
   * @param {string | null} [wanted]
   */
  draw(prompt, settings = "", wanted = null) {
    const isForeign = Boolean(prompt) && wanted !== null && wanted !== prompt;
    this.element.hidden = prompt === null;
    this.element.dataset.foreign = String(isForeign);
    put(this.prompt, prompt || "");
    put(this.settings, settings);
    put(this.foreign, isForeign ? FOREIGN : "");
  }

  /**
   * Draws the prompt of a race from the first header. Before it, space is reserved so that nothing jumps.
   * @param {Lane[]} lanes
   * @param {string | null} wanted
   */
  drawRun(lanes, wanted) {
    const read = lanes.find((lane) => lane.header);
    const header = read?.header;
    this.context.draw(read);
    this.draw(lanes.length ? header?.prompt || "" : null, header ? runText(header) : "", wanted);
  }
}

/**
 * Describes the conversation of a result; empty for a question without one.
 * @param {HeaderEvent | null | undefined} header
 */
export function contextText(header) {
  const [num, out] = [header?.history?.length || 0, header?.num_left_out || 0];
  if (!num && !out) return "";
  const turns = out === 1 ? "The oldest turn" : `The oldest ${counted(out, "turn")}`;
  const missing = out ? ` ${turns} did not fit and ${out === 1 ? "was" : "were"} left out.` : "";
  return `Turn ${num + out + 1} of a conversation.${missing}`;
}

// The conversation of a result: the number of the turn, the earlier turns, and those that did not fit.
class Context {
  constructor() {
    this.summary = make("summary");
    this.turns = make("ol", "rv-earlier");
    this.element = make("details", { class: "rv-context", hidden: "" }, this.summary, this.turns);
    /** @type {Lane | undefined} */
    this.lane = undefined;
    this.element.addEventListener("toggle", () => this.fill());
  }

  /** @param {Lane | undefined} lane of which the header is there */
  draw(lane) {
    if (lane === this.lane) return;
    this.lane = lane;
    const text = contextText(lane?.header);
    this.element.hidden = !text;
    this.element.open = false;
    put(this.summary, text);
  }

  // The header has the earlier answers as tokens; they are converted to text only when opened.
  fill() {
    const { lane } = this;
    const turns = (this.element.open && lane?.header?.history) || [];
    const rows = turns.map(({ prompt, tokens }) => {
      const bytes = tokens.map((id) => /** @type {Lane} */ (lane).bytes(id));
      const answer = new TextDecoder().decode(bytes.reduce(joinBytes, new Uint8Array(0)));
      return make("li", "", make("p", "rv-said", shown(prompt)), make("p", "rv-answered", shown(answer)));
    });
    this.turns.replaceChildren(...rows);
  }
}
