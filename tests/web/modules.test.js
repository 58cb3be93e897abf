import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";

describe("imports", () => {
  const WEB = new URL("../../assets/web/", import.meta.url);

  test("importing any module does nothing: there is no document, no window here", async () => {
    const before = Object.keys(globalThis).sort();
    for (const name of readdirSync(WEB, { recursive: true })) {
      if (name.endsWith(".js")) await import(new URL(name, WEB).href);
    }
    assert.deepEqual(Object.keys(globalThis).sort(), before);
  });
});

describe("layers", () => {
  const WEB = fileURLToPath(new URL("../../assets/web/", import.meta.url));
  // Each may import from those before it.
  const LAYERS = [["core"], ["folds"], ["text"], ["charts"], ["export", "explain"], ["tour"], ["views"], ["entries"]];
  const IMPORT = /^import \{[^}]*\} from "([^"]+)";$/gm;

  const modules = new Map(
    readdirSync(WEB, { recursive: true })
      .filter((name) => name.endsWith(".js"))
      .map((name) => {
        const source = readFileSync(path.join(WEB, name), "utf-8");
        return [name, [...source.matchAll(IMPORT)].map(([, to]) => path.posix.join(path.posix.dirname(name), to))];
      }),
  );

  const layerOf = (name) => LAYERS.findIndex((layer) => layer.includes(name.split("/")[0]));

  test("imports go one way", () => {
    assert.ok(modules.size > 60);
    const wrong = [...modules.keys()].filter((name) => layerOf(name) < 0);
    for (const [name, targets] of modules) {
      for (const target of targets) {
        const isSibling = target.split("/")[0] === name.split("/")[0];
        if (!isSibling && layerOf(target) >= layerOf(name)) wrong.push(`${name} imports ${target}`);
      }
    }
    assert.deepEqual(wrong, []);
  });

  test("no module imports itself by way of others", () => {
    const done = new Set();
    const visit = (name, above) => {
      assert.ok(!above.includes(name), [...above, name].join(" -> "));
      if (done.has(name)) return;
      for (const target of modules.get(name)) visit(target, [...above, name]);
      done.add(name);
    };
    for (const name of modules.keys()) visit(name, []);
  });
});

describe("bundles", () => {
  test("the committed ones are those of the modules: run npm run build", async () => {
    const { bundle } = await import("../../tools/bundle.js");
    const made = await bundle(false);
    assert.equal(made.length, 2);
    for (const { path: file, text } of made) {
      assert.equal(readFileSync(file, "utf-8"), text, path.basename(file));
      assert.doesNotMatch(text, /<\/script|<!--/i); // they are inlined in documents
    }
  });
});
