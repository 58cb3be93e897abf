// Detects fenced code in a text that arrives token by token. Pure; no DOM.

const FENCE = /^ {0,3}```$/;
const LONGEST = 7; // maximum characters of a line that can still be a fence

export class Fences {
  isOpen = false;
  line = "";

  /** Appends a token. Returns whether any part of it is fenced code or a fence. @param {string} text */
  append(text) {
    let isCode = this.isOpen;
    for (const letter of text) {
      if (letter === "\n") this.line = "";
      else if (this.line.length < LONGEST) this.line += letter;
      else continue;
      if (!FENCE.test(this.line)) continue;
      this.isOpen = !this.isOpen;
      this.line += "`".repeat(LONGEST); // further characters on this line are ignored
      isCode = true;
    }
    return isCode;
  }
}
