// The conversation that a result belongs to: which turn it is, what was said before, what had no room. Text only.

import { joinBytes, shown } from "../../core/bytes.js";
import { counted } from "../../core/words.js";
import { make, put } from "../../core/dom.js";

/**
 * Empty for a question that stands by itself.
 * @param {HeaderEvent | null | undefined} header
 */
export function contextText(header) {
  const [num, out] = [header?.history?.length || 0, header?.num_left_out || 0];
  if (!num && !out) return "";
  const turns = out === 1 ? "The oldest turn" : `The oldest ${counted(out, "turn")}`;
  const missing = out ? ` ${turns} had no room and ${out === 1 ? "was" : "were"} left out.` : "";
  return `Turn ${num + out + 1} of a conversation.${missing}`;
}

export class Context {
  constructor() {
    this.element = make("details", "rv-context");
    this.element.hidden = true;
    this.summary = make("summary");
    this.turns = make("ol", "rv-earlier");
    this.element.append(this.summary, this.turns);
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

  // What was said stands in the header as tokens, and is spelled only for who wants to read it.
  fill() {
    const { lane } = this;
    const turns = (this.element.open && lane?.header?.history) || [];
    const rows = turns.map(({ prompt, tokens }) => {
      const row = make("li");
      const bytes = tokens.map((id) => /** @type {Lane} */ (lane).bytes(id));
      const answer = new TextDecoder().decode(bytes.reduce(joinBytes, new Uint8Array(0)));
      row.append(make("p", "rv-said", shown(prompt)), make("p", "rv-answered", shown(answer)));
      return row;
    });
    this.turns.replaceChildren(...rows);
  }
}
