// The colours of the charts, read from the style sheet where a view stands, so that they follow the theme.

export const NUM_RUNS = 6; // colours that tell runs apart, plain AR's grey aside

/** @param {Element} root */
export function coloursOf(root) {
  const style = getComputedStyle(root);
  /** @param {string} name */
  const get = (name) => style.getPropertyValue(`--rv-${name}`).trim();
  return {
    ink: get("ink"),
    card: get("card"),
    surface: get("surface"),
    muted: get("muted"),
    grid: get("grid"),
    line: get("line"),
    warm: get("warm"),
    mars: get("mars"),
    ar: get("ar"),
    runs: [get("ar"), ...Array.from({ length: NUM_RUNS }, (_, i) => get(`run-${i + 1}`))],
    bars: [get("bar-1"), get("ramp-2"), get("ramp-3"), get("ramp-4"), get("ramp-5")],
    font: get("sans"),
    isCoarse: window.matchMedia("(pointer: coarse)").matches,
  };
}
