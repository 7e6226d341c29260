// Compile the archives of a folder in place, by Pyodide's Python: node bytecode.mjs PYODIDE_FOLDER FOLDER PREFIX
// The archive whose name begins with PREFIX keeps its sources.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [pyodide, folder, prefix] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(join(pyodide, "pyodide.mjs")).href);
const py = await loadPyodide({ indexURL: `${pyodide}/` });
py.runPython(readFileSync(new URL("bytecode.py", import.meta.url), "utf8"));
const compile = py.runPython("lambda archive, keeps_sources: compiled(archive.to_bytes(), keeps_sources)");
for (const name of readdirSync(folder).filter((name) => name.endsWith(".whl"))) {
  const written = compile(new Uint8Array(readFileSync(join(folder, name))), name.startsWith(prefix));
  writeFileSync(join(folder, name), written.toJs());
}
process.exit(0); // timers of Pyodide would keep Node alive
