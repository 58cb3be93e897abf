// Bundles the scripts of the page: `npm run build` writes assets/built/, which the page serves.

import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const ENTRIES = fileURLToPath(new URL("../assets/web/entries/", import.meta.url));
const BUILT = fileURLToPath(new URL("../assets/built/", import.meta.url));
const NAMES = ["page", "replay"];

/**
 * Bundles each module of entries/ into a classic script that adds its exports to `window.mars`.
 * @param {boolean} write whether the scripts are written to files
 * @returns {Promise<{ path: string, text: string }[]>}
 */
export async function bundle(write) {
  const { outputFiles } = await build({
    entryPoints: NAMES.map((name) => `${ENTRIES}${name}.js`),
    outdir: BUILT,
    bundle: true,
    minify: true,
    format: "iife",
    globalName: "marsModules",
    footer: { js: "window.mars = { ...window.mars, ...marsModules };" },
    target: "es2023",
    charset: "utf8",
    write,
  });
  return outputFiles ?? [];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await bundle(true);
