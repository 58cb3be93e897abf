import { make } from "./dom.js";
import { COMPUTED } from "./table.js";

const NOT_TEXT = "This file is not UTF-8 text. Save it as plain text, CSV or JSON in UTF-8 and choose it again.";

/**
 * Returns the text of a UTF-8 file, or of a UTF-16 file with a byte order mark. For other files, throws an error whose
 * `sentence` can be shown to the visitor.
 * @param {Blob} file
 */
export async function textOf(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const [first, second] = bytes;
  const isLittle = first === 0xff && second === 0xfe;
  const isBig = first === 0xfe && second === 0xff;
  const encoding = isLittle ? "utf-16le" : isBig ? "utf-16be" : "utf-8";
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    throw Object.assign(new Error(NOT_TEXT), { sentence: NOT_TEXT });
  }
}

/**
 * Returns a table as CSV (RFC 4180). It starts with a byte order mark, by which spreadsheets recognise UTF-8.
 * @param {(string | number)[][]} rows
 */
export const csvOf = (rows) => `\ufeff${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;

/** @param {string | number} value */
function cell(value) {
  if (typeof value === "number") return String(value);
  const text = value && COMPUTED.includes(value[0]) ? `'${value}` : value;
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** @type {(text: string, type: string) => Blob} */
export const textBlob = (text, type) => new Blob([text], { type: `${type};charset=utf-8` });

/** @param {string} name @param {Blob} blob */
export function download(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
