// Text of a file chosen by the visitor.

const NOT_TEXT = "This file is not text in UTF-8: save it as UTF-8 and choose it again.";

/**
 * Returns the text of a UTF-8 file, or of a UTF-16 file with a byte order mark. Throws an error with a `sentence`
 * otherwise.
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
