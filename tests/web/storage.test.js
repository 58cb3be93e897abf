import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, test } from "node:test";

import { store, stored, storedBeforeReload } from "../../assets/web/core/storage.js";
import { MAX_SEALED } from "../../assets/web/core/table.js";
import { Store } from "../../assets/web/views/compare/store.js";
import { Refusal, Server } from "../../assets/web/views/review/server.js";

const WEB = join(import.meta.dirname, "../../assets/web");

function refuse() {
  throw new DOMException("The operation is insecure.", "SecurityError");
}

/** A window whose storage is not even named without an error, as in a frame without cookies. */
const FORBIDDEN = Object.defineProperties(
  {},
  Object.fromEntries(["localStorage", "sessionStorage", "indexedDB"].map((name) => [name, { get: refuse }])),
);

afterEach(() => {
  delete globalThis.window;
});

describe("storage", () => {
  test("forbidden storage is empty and takes nothing", async () => {
    globalThis.window = FORBIDDEN;
    for (const kind of ["localStorage", "sessionStorage"]) {
      store(kind, "a", "b");
      assert.equal(stored(kind, "a"), "");
    }
    assert.equal(storedBeforeReload("a"), "");
    const pins = new Store();
    assert.notEqual(await pins.put({ id: "1" }), "");
    assert.deepEqual(await pins.all(), [{ id: "1" }]);
    await pins.remove("1");
    assert.deepEqual(await pins.all(), []);
    pins.channel?.close(); // an open one would keep this process alive
  });

  test("full storage keeps what it has", () => {
    globalThis.window = { localStorage: { getItem: () => "before", setItem: refuse } };
    store("localStorage", "a", "b");
    assert.equal(stored("localStorage", "a"), "before");
  });

  test("a database that was closed or is damaged still gives what is in memory", async () => {
    const database = { transaction: refuse, close() {} };
    const pins = new Store(() => ({
      open: () => {
        const request = { result: database };
        queueMicrotask(() => request.onsuccess());
        return request;
      },
    }));
    assert.notEqual(await pins.put({ id: "1" }), "");
    assert.deepEqual(await pins.all(), [{ id: "1" }]);
    assert.notEqual(pins.why, "");
    await pins.remove("1");
    assert.deepEqual(await pins.all(), []);
    pins.channel?.close(); // an open one would keep this process alive
  });

  test("no other script names the browser's storage", () => {
    const scripts = readdirSync(WEB, { recursive: true }).filter((name) => name.endsWith(".js"));
    assert.ok(scripts.length > 50);
    const named = scripts.filter((name) =>
      /\b(localStorage|sessionStorage)\b\s*[.[]|indexedDB/.test(readFileSync(join(WEB, name), "utf8")),
    );
    assert.deepEqual(named, [join("views", "compare", "store.js")]);
  });
});

describe("sets that a browser keeps", () => {
  const { fetch } = globalThis;
  afterEach(() => {
    globalThis.fetch = fetch;
  });

  test("a set that the server would refuse is neither kept nor sent", async () => {
    const sent = [];
    globalThis.fetch = async (path, { body } = {}) => {
      sent.push([path, body]);
      return new Response(JSON.stringify({ detail: "Too large." }), { status: 400 });
    };
    const server = new Server();
    assert.deepEqual(await server.sealed("v-1"), { sealed: "", why: "Too large." });
    await server.bring("");
    await server.bring("a".repeat(MAX_SEALED + 1));
    assert.deepEqual(sent, [["review/sets/v-1/sealed", undefined]]);
    await assert.rejects(server.bring("a".repeat(MAX_SEALED)), Refusal);
    assert.equal(sent.length, 2);
  });
});
