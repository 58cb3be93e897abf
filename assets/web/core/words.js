/**
 * Formats a threshold or a share as briefly as possible: 0.95, 1, 0.
 * @param {number} number @param {number} [digits]
 */
export function short(number, digits = 2) {
  return String(Number(number.toFixed(digits)));
}

/** @param {number} p */
export function probability(p) {
  if (p < 0.0005) return "< 0.001";
  if (p < 1 && p >= 0.9995) return "> 0.999";
  return p.toFixed(3);
}

/** @param {number} number */
const decimals = (number) => (number >= 100 ? 0 : number >= 10 ? 1 : 2);

/** Rounds a number as `figure` prints it. @param {number} number */
export const rounded = (number) => Number(number.toFixed(decimals(number)));

/** Formats a number with at most three significant figures and two decimals: 712, 71.2, 7.12. @param {number} number */
export function figure(number) {
  if (!Number.isFinite(number)) return "–";
  return number >= 100 ? whole(Math.round(number)) : number.toFixed(decimals(number));
}

const GROUPED = new Intl.NumberFormat("en-US");

/** @param {number} number */
export const whole = (number) => GROUPED.format(number);

/** @param {string} text */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** @type {(number: number, word: string, words?: string) => string} */
export const counted = (number, word, words = `${word}s`) => `${whole(number)} ${number === 1 ? word : words}`;

/** Capitalises the first letter of a text; symbols such as τ are not changed. @param {string} text */
export const capitalised = (text) => text.replace(/^[a-z]/, (letter) => letter.toUpperCase());

/** @param {number} seconds */
export const milliseconds = (seconds) => figure(seconds * 1000);

/** Formats a size in decimal units: 512 bytes, 1.02 MB. @param {number} bytes */
export function memory(bytes) {
  const units = ["bytes", "kB", "MB", "GB"];
  let [size, unit] = [bytes, 0];
  while (size >= 1000 && unit < 3) [size, unit] = [size / 1000, unit + 1];
  return `${unit ? figure(size) : whole(size)} ${units[unit]}`;
}

/**
 * Joins short texts with a dot between them and leaves out empty ones.
 * @param {(string | null | undefined | false)[]} facts
 */
export const joined = (...facts) => facts.filter(Boolean).join(" · ");

/**
 * Returns "✓ right" or "✗ wrong"; empty if it is unknown whether the answer is right.
 * @param {boolean | null} isRight
 */
export const verdictText = (isRight) => (isRight === null ? "" : isRight ? "✓ right" : "✗ wrong");

/** @param {Partial<HeaderEvent> | null | undefined} header */
export const dayOf = (header) => (header?.date || "").slice(0, 10);

/**
 * Describes the environment of a run from its trace header: checkpoint, hardware, dtype, threads, versions.
 * @param {Partial<HeaderEvent> | null | undefined} header
 */
export function environment(header) {
  if (!header) return "";
  const versions = Object.entries(header.versions || {}).map(([name, version]) => `${name} ${version}`);
  const { checkpoint = "", hardware = "", dtype = "" } = header;
  return joined(checkpoint, hardware, dtype, threads(header), ...versions);
}

/** @param {{ threads?: number }} header */
export const threads = (header) => (header.threads ? counted(header.threads, "thread") : "");
