// The menu that exports files and links. Each line of the menu is an item with a button for each format. The items are
// created when the menu is opened.

import { timeSpan } from "../charts/marks.js";
import { loadPlotly } from "../charts/plots.js";
import { forwardsFigure, timeFigure } from "../charts/specs.js";
import { CLOCKS } from "../core/clocks.js";
import { coloursOf } from "../core/colours.js";
import { NO_COPY, button, copied, find, make, put, targetOf } from "../core/dom.js";
import { download, textBlob } from "../core/files.js";
import { compared, mainLane } from "../core/folds.js";
import { SHARE } from "../core/texts.js";
import { clipGif, clipVideo } from "./clip.js";
import { allStepsCsv, canSaveReplay, fileName, replayHtml, stepsCsv, traceText } from "./files.js";
import { linkTo } from "./link.js";
import { aboutLines, chartsPng, chartsSvg, textPng } from "./png.js";

/**
 * @param {() => Offer[]} offers
 * @param {string} [name]
 */
export function exportMenu(offers, name = "Export") {
  const panel = make("div", "ex-panel");
  const status = make("p", { class: "ex-said", role: "status" });
  const menu = make("details", "ex-menu", make("summary", "", name), panel);
  menu.addEventListener("toggle", () => {
    if (!menu.open) return;
    put(status, "");
    const lines = offers().map((offer) => lineOf(offer, status));
    panel.replaceChildren(...(lines.length ? lines : [make("p", "", SHARE.nothing)]), status);
  });
  closeByItself(menu);
  return menu;
}

/**
 * @param {Offer} given
 * @param {HTMLElement} status
 */
function lineOf({ label, files }, status) {
  const buttons = files.map(({ text, hint, make: makeFile }) => {
    const node = button({ title: hint, "aria-label": `${label}: ${hint}` }, text, async () => {
      node.disabled = true;
      try {
        const done = await makeFile();
        if ("blob" in done) download(done.name, done.blob);
        put(status, "said" in done ? done.said : `Saved ${done.name}.`);
      } catch (error) {
        put(status, /** @type {{ sentence?: string }} */ (error).sentence || SHARE.noPicture);
      }
      node.disabled = false;
      node.focus();
    });
    return node;
  });
  return make("div", "ex-line", make("span", "ex-label", label), ...buttons);
}

/**
 * Returns a file format of a menu item. text, hint: label and tooltip of its button.
 * @param {string} text
 * @param {string} hint
 * @param {string} name
 * @param {() => Blob | Promise<Blob>} blob
 * @returns {FileOffer}
 */
export const fileOf = (text, hint, name, blob) => ({ text, hint, make: async () => ({ name, blob: await blob() }) });

/**
 * Returns the menu item that exports charts: as pictures, with the prompt, settings and hardware above the charts, and
 * as a table.
 * @param {string} name without an extension
 * @param {HTMLElement} root
 * @param {Lane[]} lanes
 * @param {() => { title: string, spec: Figure }[]} figures
 * @returns {Offer}
 */
export const picturesOffer = (name, root, lanes, figures) => ({
  label: "Charts",
  files: [
    fileOf("PNG", "picture of the charts", `${name}.png`, async () =>
      chartsPng(figures(), root, await plotlyOf(root), aboutLines(lanes)),
    ),
    fileOf("SVG", "scalable picture of the charts", `${name}.svg`, async () =>
      chartsSvg(figures(), root, await plotlyOf(root), aboutLines(lanes)),
    ),
    fileOf("CSV", "chart data as a table", `${name}.csv`, () =>
      textBlob(allStepsCsv(lanes.map((lane) => ({ name: lane.title, lane }))), "text/csv"),
    ),
  ],
});

/**
 * Closes a menu on Escape (and moves the focus to its button), when the focus leaves it, and on a press outside it.
 * @param {HTMLDetailsElement} menu
 */
function closeByItself(menu) {
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.preventDefault();
    event.stopPropagation();
    menu.open = false;
    find(menu, "summary").focus();
  });
  menu.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !menu.contains(/** @type {Node} */ (event.relatedTarget))) menu.open = false;
  });
  menu.addEventListener("toggle", () => {
    if (!menu.open) return;
    /** @param {Event} event */
    const elsewhere = (event) => {
      if (menu.isConnected && menu.open && menu.contains(targetOf(event))) return;
      menu.open = false;
      document.removeEventListener("pointerdown", elsewhere);
    };
    document.addEventListener("pointerdown", elsewhere);
  });
}

/**
 * Returns the menu item that exports a lane's files: trace, table and picture. root: element with the style that
 * defines the colours. comparison: the comparison with another lane's text; the differences are marked in the picture.
 * @param {Lane} lane
 * @param {string} label
 * @param {HTMLElement} root
 * @param {Compared | null} [comparison]
 * @returns {Offer}
 */
export const laneOffer = (lane, label, root, comparison = null) => ({
  label,
  files: [
    fileOf("JSONL", "trace, one line per pass", fileName(lane, "jsonl"), () =>
      textBlob(traceText(lane.lines), "application/x-ndjson"),
    ),
    fileOf("CSV", "table, one row per pass", fileName(lane, "csv"), () => textBlob(stepsCsv(lane), "text/csv")),
    fileOf("PNG", "picture of the text", fileName(lane, "png"), () => textPng(lane, label, root, comparison)),
  ],
});

/**
 * Returns the menu item that exports a race's charts: the passes of a single lane, and the tokens of all lanes by time.
 * @param {Lane} lane
 * @param {Lane[]} lanes
 * @param {HTMLElement} root
 * @returns {Offer}
 */
export const chartsOffer = (lane, lanes, root) =>
  picturesOffer(fileName(lane, "charts").replace(/\.charts$/, "-charts"), root, lanes, () => {
    const c = coloursOf(root);
    const span = timeSpan(lanes, false, CLOCKS.seconds);
    return [
      { title: "Tokens accepted per pass", spec: forwardsFigure(lane, c, span, CLOCKS.seconds, false) },
      {
        title: "Tokens by measured time, after the prompt is processed",
        spec: timeFigure(lanes, c, span, CLOCKS.seconds),
      },
    ];
  });

/**
 * Creates the Share menu of a race view: links, files of each lane, charts, a clip, and a page that replays the run.
 * @param {View} view
 */
export const runMenu = (view) =>
  exportMenu(() => {
    const { run } = view;
    const lanes = run ? run.lanes.filter((lane) => lane.steps.length) : [];
    if (!run || !lanes.length) return linkOffer(view, null);
    const main = mainLane(run);
    const hint = "page that replays the run offline";
    const page = fileOf("HTML", hint, fileName(main, "html"), () => replayFile(view.root, run));
    const comparison = run.lanes.length === 2 ? compared(run.lanes, run.differs) : null;
    const isOver = run.lanes.every((lane) => lane.end);
    return [
      ...linkOffer(view, isOver ? run : null),
      ...lanes.map((lane) => laneOffer(lane, lane.title, view.root, comparison)),
      chartsOffer(main, lanes, view.root),
      ...(isOver ? [clipOffer(run, main, view.root)] : []),
      ...(canSaveReplay(view) ? [{ label: "Replay", files: [page] }] : []),
    ];
  }, SHARE.menu);

/**
 * Returns the menu item with links: a link that fills in the page's controls, if the page has any, and a link that
 * replays the run, if it has finished.
 * @param {View} view
 * @param {Run | null} run
 * @returns {Offer[]}
 */
function linkOffer({ server }, run) {
  const { shareSetup } = window.mars;
  const isServed = Boolean(server.shared);
  const files = [
    ...(isServed && shareSetup ? [{ ...SHARE.setup, make: async () => ({ said: await shareSetup() }) }] : []),
    ...(isServed && run ? [{ ...SHARE.run, make: () => copyRun(run, server) }] : []),
  ];
  return files.length ? [{ label: SHARE.links, files }] : [];
}

/**
 * @param {Run} run
 * @param {Server} server
 */
async function copyRun(run, server) {
  const { link, isLong } = await linkTo(run, server);
  if (!(await copied(link))) return { said: NO_COPY };
  return { said: isLong ? SHARE.longCopied : SHARE.runCopied };
}

/**
 * @param {Run} run
 * @param {Lane} main
 * @param {HTMLElement} root
 * @returns {Offer}
 */
const clipOffer = (run, main, root) => ({
  label: "Clip",
  files: [
    {
      text: "WebM",
      hint: "six-second video of the race",
      make: async () => {
        const { extension, blob } = await clipVideo(run, root);
        return { name: fileName(main, extension), blob };
      },
    },
    fileOf("GIF", "six-second animated GIF of the race", fileName(main, "gif"), () => clipGif(run, root)),
  ],
});

/**
 * @param {HTMLElement} root
 * @param {Run} run
 */
async function replayFile(root, run) {
  try {
    return textBlob(await replayHtml({ root, run }), "text/html");
  } catch (error) {
    throw Object.assign(/** @type {Error} */ (error), {
      sentence: SHARE.noReplay,
    });
  }
}

/** @param {HTMLElement} root */
async function plotlyOf(root) {
  const plotly = await loadPlotly(root.dataset.plotly || "");
  if (!plotly) throw Object.assign(new Error(SHARE.noPlotly), { sentence: SHARE.noPlotly });
  return plotly;
}
