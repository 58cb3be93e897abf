// How it works as a page of its own in a replay site, and the tour over it; how.html#present begins with the tour.

import { find } from "../../core/dom.js";
import { mountExplain } from "../../explain/explain.js";
import { mountPresenter } from "../../tour/tour.js";
import { frame, pageData } from "./page.js";

export function mountHow() {
  frame(pageData().title, true);
  mountExplain(document.body);
  find(document, ".rp-present").addEventListener("click", mountPresenter);
  if (window.location.hash === "#present") mountPresenter();
}
