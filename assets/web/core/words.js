// Formats thresholds, figures, counts and sizes as text. Pure functions.

/**
 * 0.95, 1, 0: a threshold or a share, as short as possible.
 * @param {number} number
 * @param {number} [digits]
 */
export function short(number, digits = 2) {
  return String(Number(number.toFixed(digits)));
}

/** @param {number} p */
export function probability(p) {
  if (p > 0 && p < 0.0005) return "< 0.001";
  if (p < 1 && p >= 0.9995) return "> 0.999";
  return p.toFixed(3);
}

/**
 * At most three significant figures and two decimals: 712, 71.2, 7.12.
 * @param {number} number
 */
export function figure(number) {
  if (!Number.isFinite(number)) return "–";
  if (number >= 100) return whole(Math.round(number));
  return number.toFixed(number >= 10 ? 1 : 2);
}

/** @param {number} number */
export const whole = (number) => number.toLocaleString("en-US");

/** @param {string} text */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** @type {(number: number, word: string, words?: string) => string} */
export const counted = (number, word, words = `${word}s`) => `${whole(number)} ${number === 1 ? word : words}`;

/**
 * Returns a text as the beginning of a sentence; symbols such as τ stay as they are.
 * @param {string} text
 */
export const capitalised = (text) => text.replace(/^[a-z]/, (letter) => letter.toUpperCase());

/**
 * "in 42 % fewer forward passes", "in the same number of forward passes": how many passes a run took instead of a baseline's.
 * @param {number} passes
 * @param {number} baseline
 */
export function passesText(passes, baseline) {
  const saved = Math.floor(100 * (1 - passes / baseline));
  if (saved >= 1) return `in ${saved} % fewer forward passes`;
  return passes > baseline
    ? `in ${Math.ceil(100 * (passes / baseline - 1))} % more forward passes`
    : "in the same number of forward passes";
}

/**
 * "in 42 % fewer forward passes than plain AR".
 * @param {number} passes
 * @param {number} baseline
 * @param {string} name of the baseline
 */
export function passesAgainst(passes, baseline, name) {
  const text = passesText(passes, baseline);
  return `${text} ${text.includes("same") ? "as" : "than"} ${name}`;
}

/** @param {number} seconds */
export const milliseconds = (seconds) => figure(seconds * 1000);

/**
 * A size in decimal units: 512 bytes, 1.02 MB.
 * @param {number} bytes
 */
export function memory(bytes) {
  const units = ["bytes", "kB", "MB", "GB"];
  let [size, unit] = [bytes, 0];
  while (size >= 1000 && unit < 3) [size, unit] = [size / 1000, unit + 1];
  return `${unit ? figure(size) : whole(size)} ${units[unit]}`;
}

/**
 * Joins the known ones of these facts.
 * @param {(string | null | undefined | false)[]} facts
 */
export const joined = (...facts) => facts.filter(Boolean).join(" · ");

/**
 * Whether an answer is right; empty if unknown.
 * @param {boolean | null} isRight
 */
export const verdictText = (isRight) => (isRight === null ? "" : isRight ? "✓ right" : "✗ wrong");

/**
 * The day and minute of a run.
 * @param {Partial<HeaderEvent> | null | undefined} header
 */
export const dayOf = (header) => (header?.date || "").slice(0, 10);

/** @param {Partial<HeaderEvent> | null | undefined} header */
export const minuteOf = (header) => (header?.date || "").slice(0, 16).replace("T", " ");

/**
 * What a run was made on, from its trace header: checkpoint, hardware, dtype, threads, versions.
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

/**
 * Where a branch left a run, and which token it took.
 * @param {ForkPlace} given
 */
export const forkText = ({ token, taken, instead }) =>
  `token ${token}: “${taken}” ${instead ? `instead of “${instead}”` : "where the text ended"}`;
