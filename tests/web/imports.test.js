import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";

const WEB = new URL("../../assets/web/", import.meta.url);

test("importing any module does nothing: there is no document, no window here", async () => {
  const before = Object.keys(globalThis).sort();
  for (const name of readdirSync(WEB, { recursive: true })) {
    if (name.endsWith(".js")) await import(new URL(name, WEB).href);
  }
  assert.deepEqual(Object.keys(globalThis).sort(), before);
});
