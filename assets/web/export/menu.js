// The Share menu: each line has a button for each format. Items are created when the menu is opened.

import { NO_COPY, button, copied, find, make, put, targetOf } from "../core/dom.js";
import { download, textBlob } from "../core/files.js";
import { mainLane } from "../core/folds.js";
import { SHARE } from "../core/texts.js";
import { canSaveReplay, fileName, replayHtml, stepsCsv, traceText } from "./files.js";
import { linkTo } from "./link.js";

/** @param {() => Offer[]} offers @param {string} [name] */
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

/** @param {Offer} given @param {HTMLElement} status */
function lineOf({ label, files }, status) {
  const buttons = files.map(({ text, hint, make: makeFile }) => {
    const node = button({ title: hint, "aria-label": `${label}: ${hint}` }, text, async () => {
      node.disabled = true;
      try {
        const done = await makeFile();
        if ("blob" in done) download(done.name, done.blob);
        put(status, "said" in done ? done.said : `Saved ${done.name}.`);
      } catch (error) {
        put(status, /** @type {{ sentence?: string }} */ (error).sentence || SHARE.failed);
      }
      node.disabled = false;
      node.focus();
    });
    return node;
  });
  return make("div", "ex-line", make("span", "ex-label", label), ...buttons);
}

/**
 * @param {string} text @param {string} hint @param {string} name @param {() => Blob | Promise<Blob>} blob
 * @returns {FileOffer}
 */
export const fileOf = (text, hint, name, blob) => ({ text, hint, make: async () => ({ name, blob: await blob() }) });

/** @param {HTMLDetailsElement} menu */
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

/** @param {Lane} lane @param {string} label @param {FileOffer[]} [more] @returns {Offer} */
export const laneOffer = (lane, label, more = []) => ({
  label,
  files: [
    fileOf("JSONL", "trace, one line per pass", fileName(lane, "jsonl"), () =>
      textBlob(traceText(lane.lines), "application/x-ndjson"),
    ),
    fileOf("CSV", "table, one row per pass", fileName(lane, "csv"), () => textBlob(stepsCsv(lane), "text/csv")),
    ...more,
  ],
});

/**
 * Creates the Share menu of a race view: links, files of each lane, and a page that replays the run. more: further
 * items of a lane.
 * @param {View} view @param {(lane: Lane) => FileOffer[]} more
 */
export const runMenu = (view, more) =>
  exportMenu(() => {
    const { run } = view;
    const lanes = run ? run.lanes.filter((lane) => lane.steps.length) : [];
    if (!run || !lanes.length) return linkOffer(view, null);
    const main = mainLane(run);
    const hint = "page that replays the run offline";
    const page = fileOf("HTML", hint, fileName(main, "html"), async () =>
      textBlob(await replayHtml({ root: view.root, run }), "text/html"),
    );
    const isOver = run.lanes.every((lane) => lane.end);
    return [
      ...linkOffer(view, isOver ? run : null),
      ...lanes.map((lane) => laneOffer(lane, lane.title, more(lane))),
      ...(canSaveReplay(view) ? [{ label: "Replay", files: [page] }] : []),
    ];
  }, SHARE.menu);

/**
 * Returns the menu item with links: a link that fills in the page's controls, if the page has any, and a link that
 * replays the run, if it has finished.
 * @param {View} view @param {Run | null} run @returns {Offer[]}
 */
function linkOffer({ server }, run) {
  const { shareSetup } = window.mars;
  const isServed = Boolean(server.shared);
  const files = [
    ...(isServed && shareSetup ? [{ ...SHARE.setup, make: async () => ({ said: await shareSetup() }) }] : []),
    ...(isServed && run ? [{ ...SHARE.run, make: () => copyRun(run) }] : []),
  ];
  return files.length ? [{ label: SHARE.links, files }] : [];
}

/** @param {Run} run */
async function copyRun(run) {
  const { link, isLong } = await linkTo(run);
  if (!(await copied(link))) return { said: NO_COPY };
  return { said: isLong ? SHARE.longCopied : SHARE.runCopied };
}
