// The table of figures of the runs that are compared, and the sentences that belong to it. Text only.

import { make } from "../../core/dom.js";
import { FACTS, FIGURES, LETTERS, best, isOneMachine, isReadAlike, remarks } from "./figures.js";
import { folds } from "../../core/folds.js";

/**
 * @param {HTMLElement} element
 * @param {Pin[]} pins
 */
export function drawTable(element, pins) {
  const lanes = pins.map((pin) => pin.lane);
  const table = make("table", "cv-table rv-num");
  table.append(
    head(pins),
    ...figureRows(lanes),
    ...FACTS.map(([name, of]) =>
      row(
        name,
        lanes.map((lane) => [make("span", "", of(lane))]),
      ),
    ),
  );
  const scroll = make("div", "cv-scroll");
  scroll.tabIndex = 0; // wider than a phone: the keyboard scrolls it too
  scroll.setAttribute("role", "group");
  scroll.setAttribute("aria-label", "Figures of the compared runs");
  scroll.append(table);
  element.replaceChildren(scroll, ...remarks(lanes).map((sentence) => make("p", "cv-remark", sentence)));
}

/** @param {Pin[]} pins */
function head(pins) {
  const line = make("tr");
  line.append(make("td"));
  pins.forEach((pin, i) => {
    const cell = make("th");
    cell.scope = "col";
    cell.dataset.colour = String(pin.record.colour);
    cell.append(
      make("span", "cv-letter", LETTERS[i]),
      make("span", "cv-run", pin.label),
      make("span", "cv-runname", pin.name),
    );
    line.append(cell);
  });
  return line;
}

/** @param {Lane[]} lanes */
function figureRows(lanes) {
  const isFair = isOneMachine(lanes);
  return FIGURES.map(({ name, unit, of, show, better, isTimed }) => {
    const values = lanes.map(of);
    const isAlike = of !== folds.toFirst || isReadAlike(lanes);
    const top = (isTimed && !isFair) || !isAlike ? [] : best(values, better);
    return row(
      unit ? `${name}, ${unit}` : name,
      values.map((value, i) => {
        const isBest = top.includes(i);
        const number = make(isBest ? "b" : "span", "", Number.isFinite(value) ? show(value) : "–");
        return isBest ? [number, " ", make("span", "cv-best", "best")] : [number];
      }),
    );
  });
}

/**
 * @param {string} name
 * @param {(Node | string)[][]} cells
 */
function row(name, cells) {
  const line = make("tr");
  const title = make("th", "", name);
  title.scope = "row";
  line.append(title);
  for (const parts of cells) {
    const cell = make("td");
    cell.append(...parts);
    line.append(cell);
  }
  return line;
}
