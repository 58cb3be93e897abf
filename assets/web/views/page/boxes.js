// The number boxes of sliders. Gradio takes a cleared box as its minimum, and a number box passes over a comma, so that
// "0,8" would become 8 and then the maximum. Here a cleared box keeps the value it had, and a comma is a decimal point.

const BOX = "input[type=number]";

export function mountBoxes() {
  let before = ""; // the value of the focused box that was last a number
  document.addEventListener(
    "focusin",
    ({ target }) => {
      if (isBox(target)) before = target.value;
    },
    true,
  );
  document.addEventListener("beforeinput", withPoint, true);
  document.addEventListener(
    "input",
    (event) => {
      if (!isBox(event.target)) return;
      if (event.target.value) before = event.target.value;
      else event.stopPropagation(); // Gradio does not see it: the visitor is still typing
    },
    true,
  );
  for (const left of ["change", "focusout"])
    document.addEventListener(
      left,
      ({ target }) => {
        if (!isBox(target) || target.value || !before) return;
        target.value = before;
        target.dispatchEvent(new Event("input", { bubbles: true }));
      },
      true,
    );
}

/**
 * @param {EventTarget | null} target
 * @returns {target is HTMLInputElement}
 */
const isBox = (target) => target instanceof HTMLInputElement && target.matches(BOX);

/** @param {InputEvent} event */
function withPoint(event) {
  if (!isBox(event.target) || !event.data?.includes(",")) return;
  event.preventDefault();
  document.execCommand("insertText", false, event.data.replace(",", "."));
}
