// A run as a race view holds it.

import { Lane } from "../../core/trace.js";

/**
 * A run of which nothing was read yet.
 * @param {RaceHead} head
 * @returns {Run}
 */
export const runOf = (head) => ({
  id: String(head.run),
  head,
  pace: head.pace || 0,
  note: { text: "", kind: "" },
  fault: "",
  lanes: head.lanes.map((lane) => new Lane(lane)),
  recorded: head.recorded,
  checked: 0,
  differs: -1,
});
