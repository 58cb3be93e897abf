// The forwards of a text in groups, so that hundreds of them are hidden and shown at once. Knows nodes only.

import { lastOf } from "../../core/folds.js";

const GROUP = 48; // forwards in a group
const AT_ONCE = 4; // hidden groups that one call shows again: laying out thousands of tokens would halt the page

export class Groups {
  /** @type {HTMLElement[]} */
  chunks;
  /** @type {Group[]} */
  groups;
  /** @type {HTMLElement} */
  segment;
  /** @type {Group} */
  group;

  /**
   * @param {HTMLElement} element
   * @param {HTMLElement} tail
   */
  constructor(element, tail) {
    this.element = element;
    this.tail = tail; // stands after the last forward shown
    this.chunks = [];
    this.groups = [];
    /** @type {HTMLElement[]} */
    this.whole = []; // segments that got their last forward since the last call of show
    /** @type {HTMLElement[]} */
    this.drawn = []; // those that had it by then, and so were laid out whole
    this.newSegment();
  }

  // A block of its own, so that layout stays local.
  newSegment() {
    if (this.segment) this.whole.push(this.segment);
    this.segment = document.createElement("span");
    this.segment.className = "rv-seg";
    this.element.append(this.segment);
    this.newGroup();
  }

  newGroup() {
    this.group = { node: document.createElement("span"), first: this.chunks.length, nodes: [], cut: 0 };
    this.groups.push(this.group);
    this.segment.append(this.group.node);
  }

  /**
   * The nodes of one forward, its text the last of them.
   * @param {HTMLElement[]} nodes
   */
  add(nodes) {
    if (this.group.nodes.length === GROUP) this.newGroup();
    this.group.node.append(...nodes);
    this.group.nodes.push(nodes);
    this.group.cut = -1;
    this.chunks.push(lastOf(nodes));
  }

  /**
   * Shows the first `num` forwards, the end of them first, which is where a reader looks. Says whether they are all
   * shown now: after a long leap it takes several calls.
   * @param {number} num
   */
  show(num) {
    this.rest();
    let left = AT_ONCE;
    for (const group of this.groups.toReversed()) {
      const size = group.nodes.length;
      const cut = Math.max(0, Math.min(size, num - group.first));
      if (cut === group.cut) continue;
      if (group.node.hidden) left -= 1;
      if (left < 0) continue;
      group.cut = cut;
      group.node.hidden = cut === 0 && size > 0;
      if (cut > 0) group.nodes.forEach((nodes, i) => nodes.forEach((node) => hide(node, i >= cut)));
    }
    this.placeTail(num);
    return left >= 0;
  }

  // What was drawn whole in an earlier frame is drawn again only where it is in sight, and keeps its height elsewhere.
  rest() {
    for (const segment of this.drawn) segment.classList.add("rv-laid");
    this.drawn = this.whole;
    this.whole = [];
  }

  /** @param {number} num */
  placeTail(num) {
    const group = this.groups.findLast((each) => each.first <= num && each.nodes.length);
    const next = group && group.nodes[num - group.first];
    if (next) (group.cut ? next[0] : group.node).before(this.tail);
    else if (this.segment.lastChild !== this.tail) this.segment.append(this.tail);
  }
}

/**
 * @param {HTMLElement} node
 * @param {boolean} isHidden
 */
function hide(node, isHidden) {
  if (node.hidden !== isHidden) node.hidden = isHidden;
}
