// Common parts of the pictures in "How it works": a slider with its value, and the legend.

import { make } from "../core/dom.js";

/**
 * Creates a slider with its label and its value. turned: called with the new value.
 * @param {string} label
 * @param {Attributes} attributes
 * @param {(value: number) => void} turned
 */
export function knob(label, attributes, turned) {
  const input = make("input", { type: "range", ...attributes });
  const output = make("output", "", input.value);
  input.addEventListener("input", () => turned(Number(input.value)));
  return { input, output, row: make("label", "ex-knob", make("span", "", label), input, output) };
}

/** @param {string[][]} entries the kind and the text of each entry */
export const keyList = (entries) =>
  make(
    "p",
    "ex-legend",
    ...entries.map(([kind, text]) => make("span", "ex-entry", make("i", `ex-key ex-${kind}`), text)),
  );
