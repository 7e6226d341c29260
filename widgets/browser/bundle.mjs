// Bundle the browser half: widgets/browser -> widgets/labengine_widgets/static, which is committed.
//
//   node widgets/browser/bundle.mjs            write the bundle
//   node widgets/browser/bundle.mjs --check    exit with 1 if the committed bundle is not what esbuild makes of the
// sources
//   node widgets/browser/bundle.mjs --watch    write it again after each change
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, watch, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, version } from "esbuild";

const SOURCES = dirname(fileURLToPath(import.meta.url));
const ROOT = join(SOURCES, "..", "..");
const STATIC = join(SOURCES, "..", "labengine_widgets", "static");
// What both languages read.
const SHARED = [
  "labengine/glossary.json",
  "labengine/record/hidden_text.json",
  "widgets/labengine_widgets/words/phrases.json",
];
const MODULE_EXPORTS = "export const { mount, internals } = labengine;\nexport default { render: labengine.render };\n";

// Digest of all sources: tests/widgets/browser/test_bundle.py computes the same one without Node.
function digestOfSources() {
  const digest = createHash("sha256");
  const names = readdirSync(SOURCES, { recursive: true }).map((name) => name.replaceAll("\\", "/"));
  for (const name of names.filter((name) => /\.(ts|css)$/.test(name)).sort())
    digest
      .update(`${name}\0`)
      .update(readFileSync(join(SOURCES, name)))
      .update("\0");
  for (const name of SHARED)
    digest
      .update(`${name}\0`)
      .update(readFileSync(join(ROOT, name)))
      .update("\0");
  return digest.digest("hex");
}

// An ES module around one variable, so that an exported page can append code that uses it.
async function bundle() {
  const notice =
    `/* labengine's browser half, made by \`make bundle\` (esbuild ${version}). Sources: sha256 ` +
    `${digestOfSources()} */`;
  const result = await build({
    entryPoints: [join(SOURCES, "widget.ts"), join(SOURCES, "widget.css")],
    outdir: STATIC,
    bundle: true,
    minify: true,
    format: "iife",
    globalName: "labengine",
    target: "es2022",
    charset: "utf8",
    banner: { js: notice },
    footer: { js: MODULE_EXPORTS },
    write: false,
    logLevel: "warning",
  });
  return result.outputFiles;
}

async function write() {
  mkdirSync(STATIC, { recursive: true });
  for (const { path, contents } of await bundle()) {
    writeFileSync(path, contents);
    console.log(`${basename(path)}: ${contents.length} bytes`);
  }
}

async function check() {
  const outdated = (await bundle()).filter(({ path, contents }) => !readFileSync(path).equals(contents));
  if (outdated.length) throw new Error("the bundle is not up to date: make bundle");
}

const [option] = process.argv.slice(2);
if (option === "--check") await check();
else await write();
if (option === "--watch") {
  let timer;
  watch(SOURCES, { recursive: true }, () => {
    clearTimeout(timer);
    timer = setTimeout(() => write().catch((error) => console.error(error.message)), 100);
  });
}
