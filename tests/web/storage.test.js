import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, test } from "node:test";

import { store, stored, storedBeforeReload } from "../../assets/web/core/storage.js";
import { MAX_SEALED } from "../../assets/web/core/table.js";
import { Store } from "../../assets/web/core/records.js";
import { Judgements } from "../../assets/web/views/review/kept.js";
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
    assert.deepEqual(named, [join("core", "records.js")]);
  });
});

describe("a page on plain http", () => {
  const { crypto } = globalThis;
  const poor = { getRandomValues: (array) => crypto.getRandomValues(array) };
  afterEach(() => {
    Object.defineProperty(globalThis, "crypto", { value: crypto, configurable: true, writable: true });
  });

  test("a judgement and a reviewer get names", async () => {
    Object.defineProperty(globalThis, "crypto", { value: poor, configurable: true, writable: true });
    const judgements = new Judgements(new Server(), () => {});
    const rows = [await judgements.add({}), await judgements.add({})];
    for (const store of [judgements.store, judgements.drafts, judgements.sets]) store.channel?.close();
    assert.match(rows[0].id, /^[0-9a-f]{32}$/);
    assert.notEqual(rows[0].id, rows[1].id);
  });

  test("no script needs a secure context", () => {
    const scripts = readdirSync(WEB, { recursive: true }).filter((name) => name.endsWith(".js"));
    const poorer = /crypto\.(randomUUID|subtle)|navigator\.(locks|serviceWorker|storage)|\bcaches\.|showSaveFilePicker/;
    const needing = scripts.filter((name) =>
      poorer.test(readFileSync(join(WEB, name), "utf8").replaceAll(/\/\/.*/g, "")),
    );
    assert.deepEqual(needing, []);
  });
});

describe("a server that is busy", () => {
  const { fetch } = globalThis;
  afterEach(() => {
    globalThis.fetch = fetch;
  });

  /** @param {(Response | undefined)[]} answers */
  function answering(...answers) {
    const asked = [];
    globalThis.fetch = async (path, { body } = {}) => {
      asked.push([path, body]);
      return answers[asked.length - 1];
    };
    return asked;
  }

  const busy = (seconds) =>
    new Response('{"detail":"Try again."}', { status: 429, headers: { "retry-after": `${seconds}` } });
  const fine = () => new Response('{"row":1}');

  test("what was posted is sent once more", async () => {
    const asked = answering(busy(0), fine());
    assert.deepEqual(await new Server().json("sets/a/judgements", { row: { note: "typed" } }), { row: 1 });
    assert.equal(asked.length, 2);
    assert.deepEqual(asked[0], asked[1]);
  });

  test("its sentence is shown after that", async () => {
    const asked = answering(busy(0), busy(0), fine());
    await assert.rejects(new Server().json("sets"), { sentence: "Try again.", status: 429 });
    assert.equal(asked.length, 2);
  });

  test("a long time is not waited for", async () => {
    const asked = answering(busy(60), fine());
    await assert.rejects(new Server().json("sets"), { sentence: "Try again." });
    assert.equal(asked.length, 1);
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
