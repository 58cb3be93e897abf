import { find, make, put } from "../core/dom.js";
import { recording, whenRecorded } from "../core/recordings.js";
import { counted } from "../core/words.js";
import { Picture } from "./pictures.js";

export const EXPLAINED = "sort-words"; // the recording that the pictures show

/** @param {HTMLElement} element */
export function mountExplain(element) {
  const root = find(element, ".mars-explain");
  whenRecorded(() => {
    const recorded = recording(EXPLAINED);
    if (!recorded)
      return put(find(root, ".ex-asked"), "The recording of the pictures was not loaded. Reload the page.");
    const { prompt, note, lanes } = recorded;
    const [mars, ar] = lanes.map(({ steps }) => steps.length);
    const passes = `${counted(mars, "pass", "passes")} instead of ${ar}`;
    find(root, ".ex-asked").append("Prompt: ", make("q", "", prompt), ` · ${passes} · recorded ${note}`);
    for (const place of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-picture]")))
      place.replaceWith(new Picture(lanes[0], String(place.dataset.picture)).element);
    return undefined;
  });
  return root;
}
