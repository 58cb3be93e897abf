// Where the count of a group stands: under the last of its tokens that has ink. Pure.

const INKED = /\S$/;

/**
 * The place of that token, -1 where none has ink.
 * @param {Token[]} tokens
 * @param {number} first
 * @param {number} count
 */
export function countPlace(tokens, first, count) {
  for (let place = first + count - 1; place >= first; place -= 1) if (INKED.test(tokens[place].text)) return place;
  return -1;
}

/**
 * Whether a group begins with a space, whose room its gap may take: behind a line end it would hide the letter that follows.
 * @param {Token} token
 */
export const beginsWithSpace = (token) => /^[^\S\n]/.test(token.text);
