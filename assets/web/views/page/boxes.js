// Corrects how the number boxes of sliders handle typing. Gradio treats an empty box as the minimum, and browsers
// ignore a comma in a number box, so "0,8" would become 8, which is then limited to the maximum. Here, an empty box
// gets its last value back when it loses the focus, and a comma becomes a decimal point.

const BOX = "input[type=number]";

export function mountBoxes() {
  let before = ""; // the last valid value of the focused box
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
      else event.stopPropagation(); // hides the empty value from Gradio, because the visitor is still typing
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
