// The last of a list that is known not to be empty.
/**
 * @template T
 * @param {readonly T[]} list
 * @returns {T}
 */
export const lastOf = (list) => list[list.length - 1];
