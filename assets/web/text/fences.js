// Fenced code in a text that arrives token by token. Pure; no DOM.

const FENCE = /^ {0,3}```$/;
const LONGEST = 7; // letters of a line that can still become a fence

export class Fences {
  isOpen = false;
  line = "";

  /**
   * Reads the next token; returns whether some of it is fenced code or a fence.
   * @param {string} text
   */
  take(text) {
    let isCode = this.isOpen;
    for (const letter of text) {
      if (letter === "\n") this.line = "";
      else if (this.line.length < LONGEST) this.line += letter;
      else continue;
      if (!FENCE.test(this.line)) continue;
      this.isOpen = !this.isOpen;
      this.line += "`".repeat(LONGEST); // more letters on this line change nothing
      isCode = true;
    }
    return isCode;
  }
}
