// The rows of a conversation: question, answer, tokens per forward, and what can be done with each. Text only.

import { counted, figure } from "../../core/words.js";
import { shown } from "../../core/bytes.js";
import { make } from "../../core/dom.js";
import { answerOf } from "./tree.js";

const GONE = "Too long ago to be shown again; it still is part of the conversation.";

/**
 * @param {Turn} turn
 * @param {number} number from 1
 * @param {TurnState} state
 * @param {TurnActions} act
 */
export function rowOf(turn, number, state, act) {
  const row = make("li", "ct-turn");
  if (state.isShown) row.setAttribute("aria-current", "true");
  if (state.isEdited) row.append(editor(turn, number, act));
  else row.append(shower(turn, number, state, act), side(turn, number, state, act));
  return row;
}

/**
 * @param {string} key the same in every drawing, so that the keyboard stays where it was
 * @param {string} text
 * @param {string} label
 * @param {() => void} pressed
 */
function button(key, text, label, pressed) {
  const made = make("button", "", text);
  Object.assign(made, { type: "button", title: label });
  made.dataset.key = key;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", pressed);
  return made;
}

/**
 * The question and its answer, pressed to see the run.
 * @param {Turn} turn
 * @param {number} number
 * @param {TurnState} state
 * @param {TurnActions} act
 */
function shower(turn, number, { isOwn, isBusy, isShown }, act) {
  const made = make("button", "ct-show");
  made.type = "button";
  made.dataset.key = `show ${number}`;
  made.disabled = isBusy || !turn.value;
  made.title = turn.isOver && !turn.value ? GONE : isShown ? "This turn is shown below" : "Show this turn below";
  const answer = turn.told ? answerOf(turn.told, isOwn) : "";
  made.append(
    make("span", "ct-question", shown(turn.prompt)),
    make("span", "ct-answer", shown(answer).trim() || (turn.isOver ? "(nothing was written)" : "Writing…")),
  );
  made.addEventListener("click", () => act.show(turn));
  return made;
}

/**
 * @param {Turn} turn
 * @param {number} number
 * @param {TurnState} state
 * @param {TurnActions} act
 */
function side(turn, number, { besides, isBusy, isOwn }, act) {
  const element = make("div", "ct-side rv-num");
  const told = turn.isOver ? turn.told : null;
  const perForward = told && Number.isFinite(told.perForward) ? `${figure(told.perForward)} tokens per forward` : "";
  element.append(make("span", "ct-figure", perForward));
  if (told?.differs && !isOwn) element.append(make("span", "ct-differs", "MARS wrote another answer"));
  if (besides.length > 1) element.append(branches(turn, number, besides, isBusy, act));
  const edit = button(`edit ${number}`, "Edit", `Edit question ${number} and send it again`, () => act.edit(turn));
  const again = button(
    `again ${number}`,
    "Again",
    `Answer question ${number} again with the present settings; this answer stays beside it`,
    () => act.again(turn),
  );
  edit.disabled = isBusy;
  again.disabled = isBusy;
  element.append(edit, again);
  return element;
}

/**
 * @param {Turn} turn
 * @param {number} number
 * @param {Turn[]} besides
 * @param {boolean} isBusy
 * @param {TurnActions} act
 */
function branches(turn, number, besides, isBusy, act) {
  const at = besides.indexOf(turn);
  const element = make("span", "ct-branches");
  const steps = /** @type {[string, string, number][]} */ ([
    ["‹", "The version before", at - 1],
    ["›", "The next version", at + 1],
  ]).map(([text, label, to]) => {
    const made = button(`${text} ${number}`, text, `${label} of question ${number}`, () => act.show(besides[to]));
    made.disabled = isBusy || !besides[to]?.value;
    return made;
  });
  const place = make("span", "", `${at + 1} of ${besides.length}`);
  place.title = `${counted(besides.length, "version")} of this turn`;
  element.append(steps[0], place, steps[1]);
  return element;
}

/**
 * @param {Turn} turn
 * @param {number} number
 * @param {TurnActions} act
 */
function editor(turn, number, act) {
  const element = make("div", "ct-editor");
  const box = make("textarea");
  box.value = turn.prompt;
  box.rows = 3;
  box.dataset.key = `box ${number}`;
  box.setAttribute("aria-label", `Question ${number}`);
  const send = () => box.value.trim() && act.send(turn, box.value);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") act.edit(null);
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
    else return;
    event.preventDefault(); // Escape would stop the run, too
  });
  const buttons = make("div", "ct-side");
  buttons.append(
    button(`send ${number}`, "Send", `Send question ${number} as it is now; what followed the old one stays`, send),
    button(`cancel ${number}`, "Cancel", "Leave the question as it was", () => act.edit(null)),
  );
  element.append(box, buttons);
  return element;
}
