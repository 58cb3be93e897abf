// The keyboard shortcuts of the Review tab. They do not apply while an input has the focus; Escape leaves the input.

import { isModified, put, targetOf } from "../../core/dom.js";
import { noteOf } from "./judging.js";

const TAB = "sets-tab-button";
export const HOLD = "Charts, checks, exports and Live stay locked until you reveal the labels.";

/**
 * Handles keys while the focus is in the tab, on the tab's button, or on no element.
 * @param {HTMLElement} root
 * @param {ReviewKeyed} view
 */
export function listen(root, view) {
  document.addEventListener("keydown", (event) => {
    const target = targetOf(event);
    if (!view.about || !root.clientWidth || isModified(event) || event.defaultPrevented) return;
    if (target !== document.body && !root.contains(target) && target.id !== TAB) return;
    if (target.matches("input, textarea, select")) {
      if (event.key === "Escape") leave(event, root);
      return;
    }
    const act = actOf(event, root, view);
    if (!act) return;
    event.preventDefault();
    act();
  });
}

/**
 * @param {KeyboardEvent} event
 * @param {HTMLElement} root
 */
function leave(event, root) {
  event.stopPropagation();
  targetOf(event).blur();
  root.focus({ preventScroll: true });
}

/**
 * @param {KeyboardEvent} event
 * @param {HTMLElement} root
 * @param {ReviewKeyed} view
 * @returns {(() => unknown) | undefined}
 */
function actOf({ key, code, shiftKey }, root, view) {
  const { judging, reading, said } = view;
  const digit = /^(?:Digit|Numpad)([1-5])$/.exec(code);
  if (digit) return () => judging.rate(shiftKey ? 1 : 0, Number(digit[1]));
  if (key.toLowerCase() === "t") return () => judging.sides[shiftKey ? 1 : 0].field.focus();
  if (shiftKey) return undefined;
  /** @type {Record<string, () => unknown>} */
  const acts = {
    j: () => view.go(1),
    k: () => view.go(-1),
    x: () => view.toUnjudged(),
    n: () => put(said, reading.step(1)),
    p: () => put(said, reading.step(-1)),
    a: () => judging.prefer("left"),
    s: () => judging.prefer("equal"),
    d: () => judging.prefer("right"),
    c: () => noteOf(root).focus(),
    u: () => view.undo(),
    o: () => (view.masked ? put(said, HOLD) : view.openLive(view.other)),
  };
  return acts[key];
}
