// Parses an answer as Markdown into a tree of blocks with positions in the text. Supports headings, lists,
// tables, quotes, fenced and inline code, and emphasis, but no HTML, images or working links. Pure; no DOM.

/** @typedef {{ from: number, to: number, text: string }} Line a line without its line end */

const FENCE = /^ {0,3}(```+|~~~+)[ \t]*([\w+#.-]*)/;
const HEADING = /^(#{1,6})[ \t]+/;
const ITEM = /^([ \t]*)(?:[-*+]|\d{1,3}[.)])[ \t]+/;
const NUMBERED = /^[ \t]*\d/;
const QUOTE = /^ {0,3}>[ \t]?/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const DIVIDER = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
// Code, strong, emphasis, strikethrough, links and images; only their text is shown.
const INLINE =
  /(`+)(?!`)(.+?)(?<!`)\1(?!`)|(\*\*|__)(?=\S)(.+?\S?)\3|(?<![\w*])([*_])(?=[^\s*_])(.+?)(?<=\S)\5(?![\w*])|~~(?=\S)(.+?)~~|!?\[([^\]\n]*)\]\(([^()\s]*)\)/s;
const MOST_DEEP = 8; // maximum depth of nested blocks and inline elements

/** @type {(tag: string, children: (MarkdownNode | Piece)[], kind?: string) => MarkdownNode} */
const node = (tag, children, kind) => (kind ? { tag, kind, children } : { tag, children });

/**
 * @param {string} text
 * @returns {MarkdownNode[]}
 */
export function markdown(text) {
  /** @type {Line[]} */
  const lines = [];
  for (let from = 0; from <= text.length;) {
    const end = text.indexOf("\n", from);
    const to = end < 0 ? text.length : end;
    lines.push({ from, to, text: text.slice(from, to) });
    from = to + 1;
  }
  return blocks(lines, text, 0);
}

/**
 * @param {Line} line
 * @param {number} num
 * @returns {Line}
 */
const cut = ({ from, to, text }, num) => ({ from: from + num, to, text: text.slice(num) });

/**
 * @param {Line[]} lines
 * @param {string} text
 * @param {number} depth
 * @returns {MarkdownNode[]}
 */
function blocks(lines, text, depth) {
  /** @type {MarkdownNode[]} */
  const nodes = [];
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    const begin = at;
    /** @param {(next: Line) => boolean} continues */
    const takeWhile = (continues) => {
      for (at += 1; at < lines.length && continues(lines[at]);) at += 1;
      return lines.slice(begin, at);
    };
    const fence = FENCE.exec(line.text);
    const heading = HEADING.exec(line.text);
    if (!line.text.trim()) at += 1;
    else if (fence) {
      const inner = takeWhile((next) => !next.text.trimStart().startsWith(fence[1])).slice(1);
      at += 1; // the closing fence, if it has arrived
      /** @type {Piece[]} */
      const pieces = inner.map(({ from, to }) => [from, Math.min(to + 1, text.length)]);
      nodes.push(node("pre", [node("code", pieces)], fence[2]));
    } else if (heading) {
      at += 1;
      const words = cut(line, heading[0].length);
      const closing = /[ \t]+#+[ \t]*$/.exec(words.text)?.[0].length ?? 0;
      nodes.push(node(`h${heading[1].length}`, inline(text, words.from, words.to - closing)));
    } else if (RULE.test(line.text)) {
      at += 1;
      nodes.push(node("hr", []));
    } else if (QUOTE.test(line.text) && depth < MOST_DEEP) {
      const inner = takeWhile((next) => QUOTE.test(next.text)).map((quoted) =>
        cut(quoted, QUOTE.exec(quoted.text)?.[0].length ?? 0),
      );
      nodes.push(node("blockquote", blocks(inner, text, depth + 1)));
    } else if (ITEM.test(line.text) && depth < MOST_DEEP) nodes.push(list(takeWhile(belongs(line)), text, depth));
    else if (line.text.includes("|") && DIVIDER.test(lines[at + 1]?.text ?? "") && lines[at + 1].text.includes("-"))
      nodes.push(
        table(
          takeWhile((next) => next.text.includes("|")),
          text,
        ),
      );
    else nodes.push(paragraph(takeWhile(isProse), text));
  }
  return nodes;
}

/**
 * Returns whether a line continues a paragraph.
 * @param {Line} line
 */
const isProse = ({ text }) =>
  Boolean(text.trim()) && !FENCE.test(text) && !HEADING.test(text) && !ITEM.test(text) && !QUOTE.test(text) && !RULE.test(text); // prettier-ignore

/** @param {string} text */
const indent = (text) => /^[ \t]*/.exec(text)?.[0].length ?? 0;

/**
 * Returns a function that tells, for each following line, whether it belongs to the list that begins with `first`: the
 * line is another item, or text indented below an item.
 * @param {Line} first
 */
function belongs(first) {
  const [depth, isNumbered] = [indent(first.text), NUMBERED.test(first.text)];
  let isOpen = true; // whether the previous line was not blank
  /** @param {Line} line */
  return (line) => {
    const { text } = line;
    const isBlank = !text.trim();
    const isItem = ITEM.test(text) && !RULE.test(text) && NUMBERED.test(text) === isNumbered;
    const isInList = isBlank || indent(text) > depth || isItem || (isOpen && isProse(line));
    isOpen = !isBlank;
    return isInList;
  };
}

/**
 * @param {Line[]} lines
 * @param {string} text
 * @param {number} depth
 */
function list(lines, text, depth) {
  const level = indent(lines[0].text);
  /** @type {Line[][]} */
  const items = [];
  for (const line of lines) {
    const mark = ITEM.exec(line.text);
    if (mark && indent(line.text) <= level) items.push([cut(line, mark[0].length)]);
    else items[items.length - 1].push(cut(line, Math.min(indent(line.text), level + 2)));
  }
  const children = items.map((item) => {
    const inner = blocks(item, text, depth + 1);
    const [first] = inner;
    return node("li", first?.tag === "p" ? [...first.children, ...inner.slice(1)] : inner);
  });
  return node(NUMBERED.test(lines[0].text) ? "ol" : "ul", children);
}

/**
 * @param {Line[]} lines the second one is the divider
 * @param {string} text
 */
function table(lines, text) {
  const rows = lines.filter((_, i) => i !== 1);
  const num = cells(rows[0]).length;
  const rowNodes = rows.map(
    (row, i) =>
    node("tr", cells(row).slice(0, num).map(([from, to]) => node(i ? "td" : "th", inline(text, from, to)))), // prettier-ignore
  );
  return node("table", [node("thead", rowNodes.slice(0, 1)), node("tbody", rowNodes.slice(1))]);
}

/**
 * Returns the cells of a table row without surrounding spaces.
 * @param {Line} line
 * @returns {Piece[]}
 */
function cells({ from, text }) {
  /** @type {Piece[]} */
  const pieces = [];
  const trimmed = text.trimEnd().replace(/\|$/, "");
  let begin = /^\s*\|?/.exec(trimmed)?.[0].length ?? 0;
  for (let at = begin; at <= trimmed.length; at += 1) {
    if (at < trimmed.length && (trimmed[at] !== "|" || trimmed[at - 1] === "\\")) continue;
    const cell = trimmed.slice(begin, at);
    const left = begin + cell.length - cell.trimStart().length;
    pieces.push([from + left, from + left + cell.trim().length]);
    begin = at + 1;
  }
  return pieces;
}

/**
 * @param {Line[]} lines
 * @param {string} text
 */
function paragraph(lines, text) {
  const children = lines.flatMap((line, i) => {
    const unindented = cut(line, indent(line.text));
    const isBroken = / {2,}$/.test(line.text) && i < lines.length - 1;
    const end = i < lines.length - 1 && !isBroken ? Math.min(line.to + 1, text.length) : line.to;
    return [...inline(text, unindented.from, end), ...(isBroken ? [node("br", [])] : [])];
  });
  return node("p", children);
}

/**
 * Parses a range of the text into pieces and inline elements.
 * @param {string} text
 * @param {number} from
 * @param {number} to
 * @param {number} [depth]
 * @returns {(MarkdownNode | Piece)[]}
 */
function inline(text, from, to, depth = 0) {
  const match = depth < MOST_DEEP ? INLINE.exec(text.slice(from, to)) : null;
  if (!match) return from < to ? [[from, to]] : [];
  const [all, ticks, code, strong, bold, , italic, struck, words, address] = match;
  const begin = from + match.index;
  /** @type {(tag: string, inner: string, skipped: number) => MarkdownNode} */
  const element = (tag, inner, skipped) =>
    node(tag, inline(text, begin + skipped, begin + skipped + inner.length, depth + 1));
  const skipped = all.startsWith("!") ? 2 : 1;
  const parsed = ticks
    ? node("code", [[begin + ticks.length, begin + ticks.length + code.length]])
    : strong
      ? element("strong", bold, 2)
      : italic !== undefined
        ? element("em", italic, 1)
        : struck !== undefined
          ? element("s", struck, 2)
          : node("u", [[begin + skipped, begin + skipped + words.length]], address);
  const before = match.index ? [/** @type {Piece} */ ([from, begin])] : [];
  return [...before, parsed, ...inline(text, begin + all.length, to, depth)];
}
