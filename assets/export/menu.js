// A menu of files: a line for each thing that can be had, a button for each form of it. What is offered
// is asked for when the menu opens. Offers: [{label, files: [{text, hint, make() -> {name, blob}}]}].

import { make, put } from "../common/dom.js";
import { loadPlotly } from "../common/plotly.js";
import { coloursOf } from "../common/colours.js";
import { compared, mainLane } from "../common/trace.js";
import { confidenceFigure, forwardsFigure, timeFigure } from "../race_view/chart_specs.js";
import { canSaveReplay, replayHtml } from "../replay/save.js";
import { download, fileName, stepsCsv, textBlob, traceText } from "./files.js";
import { chartsPng, textPng } from "./png.js";

const FAILED = "This picture could not be drawn by the browser; the other forms hold the same run.";
const NO_CHARTS = "The charts need plotly.js, which did not load.";

export function exportMenu(offers, name = "Export") {
  const menu = make("details", "ex-menu");
  const panel = make("div", "ex-panel");
  const said = make("p", "ex-said");
  said.setAttribute("role", "status");
  menu.append(make("summary", "", name), panel);
  menu.addEventListener("toggle", () => {
    if (!menu.open) return;
    put(said, "");
    const lines = offers().map((offer) => lineOf(offer, said));
    panel.replaceChildren(...(lines.length ? lines : [make("p", "", "Nothing has been decoded yet.")]), said);
  });
  closeByItself(menu);
  return menu;
}

function lineOf({ label, files }, said) {
  const line = make("div", "ex-line");
  line.append(make("span", "ex-label", label));
  for (const { text, hint, make: made } of files) {
    const button = make("button", "", text);
    button.type = "button";
    button.title = hint;
    button.setAttribute("aria-label", `${label}: ${hint}`);
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        const { name, blob } = await made();
        download(name, blob);
        put(said, `${name} is on its way.`);
      } catch (error) {
        put(said, error.sentence || FAILED);
      }
      button.disabled = false;
      button.focus();
    });
    line.append(button);
  }
  return line;
}

// Escape closes and stays with the menu; so does looking elsewhere.
function closeByItself(menu) {
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.preventDefault();
    event.stopPropagation();
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  menu.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false;
  });
  menu.addEventListener("toggle", () => {
    if (!menu.open) return;
    const elsewhere = (event) => {
      if (menu.isConnected && menu.open && menu.contains(event.target)) return;
      menu.open = false;
      document.removeEventListener("pointerdown", elsewhere);
    };
    document.addEventListener("pointerdown", elsewhere);
  });
}

// The files of one lane. root: where it stands, for the colours; found: how its text compares with the other's, if there
// is one.
export const laneOffer = (lane, label, root, found = null) => ({ label, files: [
  { text: "JSONL", hint: "trace, one line per forward", make: () => ({ name: fileName(lane, "jsonl"), blob: textBlob(traceText(lane.lines), "application/x-ndjson") }) },
  { text: "CSV", hint: "table of the forwards", make: () => ({ name: fileName(lane, "csv"), blob: textBlob(stepsCsv(lane), "text/csv") }) },
  { text: "PNG", hint: "picture of the text", make: async () => ({ name: fileName(lane, "png"), blob: await textPng(lane, label, root, found) }) },
] });

// The charts of one lane, and of all of them against time.
export const chartsOffer = (lane, lanes, root) => ({ label: "Charts", files: [
  { text: "PNG", hint: "picture of the charts", make: async () => {
    const plotly = await plotlyOf(root);
    const c = coloursOf(root);
    const figures = [["Tokens accepted by each forward", forwardsFigure(lane, c, false)], ["Confidence of each accepted token", confidenceFigure(lane, c, false)],
      ["Tokens against measured time, from the prompt read", timeFigure(lanes, c)]];
    return { name: fileName(lane, "charts.png"), blob: await chartsPng(figures.map(([title, spec]) => ({ title, spec })), root, plotly) };
  } },
] });

// The menu of a race view: each lane of the run that it shows, its charts, and the run as a page of its own.
export const runMenu = (view) => exportMenu(() => {
  const lanes = view.run ? view.run.lanes.filter((lane) => lane.steps.length) : [];
  if (!lanes.length) return [];
  const main = mainLane(view.run);
  const page = { text: "HTML", hint: "page that replays the run without a network", make: () => replayFile(view, main) };
  const found = view.run.lanes.length === 2 ? compared(view.run.lanes, view.run.differs) : null;
  return [...lanes.map((lane) => laneOffer(lane, lane.title, view.root, found)), chartsOffer(main, lanes, view.root),
    ...(canSaveReplay(view) ? [{ label: "Replay", files: [page] }] : [])];
});

async function replayFile(view, main) {
  try {
    return { name: fileName(main, "html"), blob: textBlob(await replayHtml(view), "text/html") };
  } catch (error) {
    throw Object.assign(error, { sentence: "The page for replays did not load from the server; try again." });
  }
}

export async function plotlyOf(root) {
  const plotly = await loadPlotly(root.dataset.plotly);
  if (!plotly) throw Object.assign(new Error(NO_CHARTS), { sentence: NO_CHARTS });
  return plotly;
}
