// The functions of the page's script, which `window.mars` offers to the page's components.

export { mountRecordings } from "../core/recordings.js";
export { mountExplain } from "../explain/explain.js";
export { mountPresenter } from "../tour/tour.js";
export { mountConversationView } from "../views/conversation/view.js";
export { mountGridView } from "../views/grid/view.js";
export { mountPage } from "../views/page/page.js";
export { mountRaceView } from "../views/race/view.js";
export { mountReview } from "../views/review/view.js";
export { mountThroughputView } from "../views/throughput/view.js";
