import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, test } from "node:test";

import { store, stored, storedBeforeReload } from "../../assets/web/core/storage.js";
import { Store } from "../../assets/web/core/records.js";

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
      assert.equal(store(kind, "a", "b"), false);
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

  test("no other script names the browser's storage, none needs a secure context", () => {
    const scripts = readdirSync(WEB, { recursive: true }).filter((name) => name.endsWith(".js"));
    assert.ok(scripts.length > 50);
    const named = scripts.filter((name) =>
      /\b(localStorage|sessionStorage)\b\s*[.[]|indexedDB/.test(readFileSync(join(WEB, name), "utf8")),
    );
    assert.deepEqual(named, [join("core", "records.js")]);
    // A page on plain http has none of these.
    const secure = /crypto\.(randomUUID|subtle)|navigator\.(locks|serviceWorker|storage)|\bcaches\.|showSaveFilePicker/;
    const needing = scripts.filter((name) =>
      secure.test(readFileSync(join(WEB, name), "utf8").replaceAll(/\/\/.*/g, "")),
    );
    assert.deepEqual(needing, []);
  });
});
