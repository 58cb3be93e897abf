// The link that brings back a prompt and its settings. Knows the names of controls, not what they mean.

import { questionOnShow } from "../conversation/view.js";

const MOST_CHARACTERS = 8000; // what servers on the way take for sure

/**
 * base: the page without a query, "" for this one. Names and values of controls, in the same order.
 * @param {string} base
 * @param {string[]} names
 * @param {unknown[]} values
 */
function linkFor(base, names, values) {
  const chosen = Object.fromEntries(names.map((name, i) => [name, values[i]]));
  chosen.prompt ||= questionOnShow(); // in a conversation the box is empty
  if (chosen.auto) chosen.block_size = "auto";
  delete chosen.auto;
  return `${base || location.origin + location.pathname}?${new URLSearchParams(Object.entries(chosen).map(([name, value]) => [name, String(value)]))}`;
}

/**
 * Where the clipboard is closed (a page without https), the old way through a selection.
 * @param {string} text
 */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const isDone = document.execCommand("copy");
    field.remove();
    return isDone;
  }
}

/**
 * Called by the button; the sentence that it shows.
 * @param {string} base
 * @param {string[]} names
 * @param {unknown[]} values
 */
export async function share(base, names, values) {
  const link = linkFor(base, names, values);
  if (link.length > MOST_CHARACTERS)
    return "This prompt is too long for a link: shorten it, or export the run instead.";
  if (await copied(link)) return "Link copied: it brings back this prompt and these settings.";
  return "This browser lets nothing be copied: allow it for this page and try again.";
}
