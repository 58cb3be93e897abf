// Mounts "How it works" as a separate page of a replay site. The address how.html#present also opens the tour.

import { find } from "../../core/dom.js";
import { mountExplain } from "../../explain/explain.js";
import { mountPresenter } from "../../tour/tour.js";
import { frame } from "./page.js";
import { pageData } from "./parts.js";

export function mountHow() {
  frame(pageData().title, true);
  mountExplain(document.body);
  find(document, ".rp-present").addEventListener("click", mountPresenter);
  if (window.location.hash === "#present") mountPresenter();
}
