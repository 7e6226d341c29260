// Python in a worker: it loads what lies beside this script, and nothing from anywhere else.
import type { Posted } from "./connection.ts";

// The parts of Pyodide that are used here. (Its own declarations need those of Node.)
interface Python {
  unpackArchive(archive: ArrayBuffer, format: string, options: { extractDir: string }): void;
  runPython(code: string): unknown;
  pyimport(module: string): { LivePage(post: Post): { receive(message: string): void } };
}
type Post = (kind: Posted["kind"], content: string, buffers: { toJs(): Uint8Array<ArrayBuffer>[] }) => void;

const HERE = new URL(".", import.meta.url),
  PACKAGES = "/lib/labengine";

function post(kind: Posted["kind"], content: Record<string, unknown>, buffers: Uint8Array<ArrayBuffer>[] = []) {
  const posted: Posted = { kind, content, buffers };
  self.postMessage(posted, { transfer: buffers.map(({ buffer }) => buffer) });
}

async function fetched(name: string) {
  const answer = await fetch(new URL(name, HERE));
  if (!answer.ok) throw new Error(`${name}: ${answer.status} ${answer.statusText}`);
  return answer.arrayBuffer();
}

async function python(): Promise<Python> {
  const { loadPyodide } = await import(new URL("pyodide/pyodide.mjs", HERE).href),
    indexURL = new URL("pyodide/", HERE).href;
  const [py, packages] = await Promise.all([loadPyodide({ indexURL }), fetched("labengine.zip")]);
  py.unpackArchive(packages, "zip", { extractDir: PACKAGES });
  py.runPython(`import sys; sys.path.insert(0, "${PACKAGES}")`);
  return py;
}

async function start() {
  const py = await python(),
    { LivePage } = py.pyimport("labengine.live_page.page"),
    page = LivePage((kind, content, buffers) => post(kind, JSON.parse(content), buffers.toJs()));
  self.onmessage = ({ data }) => page.receive(JSON.stringify(data));
  post("ready", {});
}

start().catch((error: Error) => post("failed", { message: error.message }));
