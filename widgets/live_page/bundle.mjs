// Bundle the live page into a folder: node widgets/live_page/bundle.mjs FOLDER
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const SOURCES = dirname(fileURLToPath(import.meta.url));

await build({
  entryPoints: ["page.ts", "worker.ts", "doctor.ts", "doctor_worker.ts", "notebook.ts", "page.css", "doctor.css"].map(
    (name) => join(SOURCES, name),
  ),
  outdir: process.argv[2],
  outExtension: { ".js": ".mjs" },
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  logLevel: "warning",
});
