// Pure; no DOM.

/** @param {string} latin1 */
export const bytesOf = (latin1) => Uint8Array.from(latin1, (c) => c.charCodeAt(0));

/** Returns the bytes at the end of `bytes` that belong to an incomplete character. @param {Uint8Array} bytes */
export function incompleteTail(bytes) {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back];
    if (byte < 0x80) return bytes.slice(bytes.length);
    if (byte >= 0xc0) {
      const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return bytes.slice(length > back ? bytes.length - back : bytes.length);
    }
  }
  return bytes.slice(bytes.length);
}

/** @param {Uint8Array} first @param {Uint8Array} second */
export function joinBytes(first, second) {
  const all = new Uint8Array(first.length + second.length);
  all.set(first);
  all.set(second, first.length);
  return all;
}

/**
 * Returns the text of a single token, or its bytes in hexadecimal if they are only part of a character.
 * @param {Uint8Array} bytes
 */
export function aloneText(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return "⟨" + Array.from(bytes, (b) => b.toString(16).padStart(2, "0").toUpperCase()).join(" ") + "⟩";
  }
}

/** @type {Record<string, string>} */
const NAMES = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽" };
// Control characters, joiners and direction marks, which are invisible and could disturb the layout of a token's card.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/**
 * Returns a token's text for display in its card, with white space and other invisible characters replaced by visible
 * signs.
 * @param {string} text
 */
export function visible(text) {
  return text
    .replace(/[ \n\t\r\u00a0]/g, (c) => NAMES[c])
    .replace(HIDDEN, (c) => "‹" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "›");
}

const FROM_THE_RIGHT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

/**
 * Returns whether the first letter of a text belongs to a script that is written from right to left.
 * @param {string} text
 */
export const isRightToLeft = (text) => FROM_THE_RIGHT.test(/\p{L}/u.exec(text)?.[0] ?? "");

/**
 * Returns text for the page, without characters that would change the reading direction around it.
 * @param {string} text
 */
export const withoutBidi = (text) => text.replace(/[\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
