import assert from "node:assert/strict";
import { test } from "node:test";

import { Feed } from "../../assets/web/core/wire.js";

// What a sink was told, in order.
function heard() {
  const told = [];
  const sink = {
    start: (head) => told.push(`start ${head.run}`),
    line: (tag, data, text) => told.push(`${tag} ${text}`),
    clear: () => told.push("clear"),
  };
  const feed = new Feed(sink);
  return { told, feed, read: (value) => (feed.read(value), feed.work(1000)) };
}

const value = (head, ...lines) => [JSON.stringify(head), ...lines, ""].join("\n");

test("a growing value is read once", () => {
  const { told, read } = heard();
  read(value({ run: "a" }, "mars\t1"));
  read(value({ run: "a" }, "mars\t1", "mars\t2"));
  assert.deepEqual(told, ["start a", "mars 1", "mars 2"]);
});

test("a line counts once its newline is there", () => {
  const { told, read } = heard();
  read('{"run":"a"}\nmars\t1\nmars\t2');
  assert.deepEqual(told, ["start a", "mars 1"]);
});

test("windows overlap, and what was read is not read again", () => {
  const { told, read } = heard();
  read(value({ run: "a" }, "mars\t1", "mars\t2"));
  read(value({ run: "a", from: 1 }, "mars\t2", "mars\t3"));
  assert.deepEqual(told, ["start a", "mars 1", "mars 2", "mars 3"]);
});

test("a window that begins too late is not read: the feed is behind until the whole comes", () => {
  const { told, feed, read } = heard();
  read(value({ run: "a" }, "mars\t1"));
  read(value({ run: "a", from: 3 }, "mars\t4"));
  assert.equal(feed.isBehind, true);
  read(value({ run: "a" }, "mars\t1", "mars\t2", "mars\t3", "mars\t4"));
  assert.equal(feed.isBehind, false);
  assert.deepEqual(told, ["start a", "mars 1", "mars 2", "mars 3", "mars 4"]);
});

test("another run begins anew, and nothing at all clears", () => {
  const { told, read } = heard();
  read(value({ run: "a" }, "mars\t1"));
  read(value({ run: "b" }, "mars\t2"));
  read("");
  assert.deepEqual(told, ["start a", "mars 1", "start b", "mars 2", "clear"]);
});

test("a broken line is an error", () => {
  const { feed } = heard();
  feed.read(value({ run: "a" }, "mars\t{"));
  assert.throws(() => feed.work(1000), SyntaxError);
});
