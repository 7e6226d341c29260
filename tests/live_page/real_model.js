// Run in Node: a script of Python in Pyodide, with the real model as the page's worker loads it.
// node real_model.js PYODIDE_FOLDER ARCHIVE KERNELS GGUF SCRIPT INPUT
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { Kernels } from "../../widgets/live_page/kernels.ts";

const [folder, archive, module, gguf, script, input] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`).href);
const py = await loadPyodide({ indexURL: `${folder}/` });
py.unpackArchive(new Uint8Array(readFileSync(archive)), "zip", { extractDir: "/lib/labengine" });
py.runPython('import sys; sys.path.insert(0, "/lib/labengine")');
const kernels = await Kernels.of(readFileSync(module)),
  weights = readFileSync(gguf),
  at = kernels.take(weights.length);
kernels.bytes(at, weights.length).set(weights);
const began = performance.now();
py.pyimport("labengine.engine.wasm.model").load_in_page(kernels, at, weights.length, "smollm2", "b179");
py.globals.set("import_s", (performance.now() - began) / 1000);
py.globals.set("given", readFileSync(input, "utf8"));
const found = await py.runPythonAsync(readFileSync(script, "utf8")).catch(({ message }) => {
  console.error(message); // Node itself would print a source line of a megabyte
  process.exit(1);
});
process.stdout.write(`${found}\n`, () => process.exit(0)); // timers of Pyodide would keep Node alive
