// Two words for the document: make an element, put text where it changed. Text only, never markup.

export const make = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};

export const put = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};
