// The two-stream attention mask of stage mars, as mars_runtime/lab/training/masks.py has it, for one row. No DOM.

/**
 * Block of every position: -1 in the prompt; the first block of the response holds `firstBlock` positions.
 * @param {number} length
 * @param {number} prompt
 * @param {number} blockSize
 * @param {number} [firstBlock]
 */
function blockIds(length, prompt, blockSize, firstBlock = blockSize) {
  /** @param {number} place */
  const block = (place) => (place < 0 ? -1 : Math.floor((place + blockSize - firstBlock) / blockSize));
  return Array.from({ length }, (_, position) => block(position - prompt));
}

/**
 * Everything that asks or is asked: the clean stream, then a mask for each position of the response.
 * @param {number} length
 * @param {number} prompt
 * @param {number} blockSize
 * @returns {MaskSlot[]}
 */
export function streams(length, prompt, blockSize) {
  const blocks = blockIds(length, prompt, blockSize);
  const clean = blocks.map((block, position) => ({ isNoisy: false, position, block }));
  const noisy = clean.slice(prompt).map((slot) => ({ ...slot, isNoisy: true }));
  return [...clean, ...noisy];
}

/**
 * Whether a query may attend to a key.
 * @param {MaskSlot} query
 * @param {MaskSlot} key
 */
function sees(query, key) {
  if (!query.isNoisy) return !key.isNoisy && key.position <= query.position;
  if (!key.isNoisy) return key.block < query.block;
  return key.block === query.block && key.position <= query.position;
}

/**
 * True where query (row) may attend to key (column).
 * @param {number} length
 * @param {number} prompt
 * @param {number} blockSize
 */
export function twoStreamMask(length, prompt, blockSize) {
  const slots = streams(length, prompt, blockSize);
  return slots.map((query) => slots.map((key) => sees(query, key)));
}
