// Three words for the document: make an element, put text where it changed, find a place. Text only, never markup.

export const make = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};

export const put = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

// How far a node stands below the top of what its scroller holds, in pixels.
export function placeIn(scroller, node) {
  return (
    node.getBoundingClientRect().top - scroller.getBoundingClientRect().top - scroller.clientTop + scroller.scrollTop
  );
}
