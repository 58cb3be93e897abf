// The rule that a grapheme cluster, such as a flag or a letter with its accents, is never divided between two tokens.

const SEGMENTER = new Intl.Segmenter("und", { granularity: "grapheme" });

/**
 * Returns how many UTF-16 units at the start of `text` belong to the last grapheme cluster of `before`.
 * @param {string} before begins at the start of a cluster
 * @param {string} text
 */
export function joinedLength(before, text) {
  const cluster = SEGMENTER.segment(before + text).containing(before.length);
  if (!before || !cluster || cluster.index === before.length) return 0;
  return cluster.index + cluster.segment.length - before.length;
}
