// The functions of a document that replays recorded runs.

export { mountRaceView } from "../views/race/view.js";
export { mountReplay } from "../views/replay/page.js";
