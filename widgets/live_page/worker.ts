// Python in a worker: it loads what lies beside this script, and nothing from anywhere else.
import type { Posted } from "./connection.ts";
import { fetched } from "./fetched.ts";
import type { Kernels } from "./kernels.ts";
import type { ModelNews } from "./real_model.ts";
import type { Files } from "./weights.ts";
import { areKept, listed } from "./weights.ts";

// The parts of Pyodide that are used here. (Its own declarations need those of Node.)
interface Python {
  unpackArchive(archive: ArrayBuffer, format: string, options: { extractDir: string }): void;
  runPython(code: string): unknown;
  pyimport(module: string): { LivePage(post: Post): Page };
}
interface Page {
  receive(message: string): void;
  load_model(kernels: Kernels, at: number, numBytes: number, name: string, digest: string): string;
}
type Post = (kind: Posted["kind"], content: string, buffers: { toJs(): Uint8Array<ArrayBuffer>[] }) => void;

const HERE = new URL(".", import.meta.url),
  PACKAGES = "/lib/labengine";

function post(kind: Posted["kind"], content: Record<string, unknown>, buffers: Uint8Array<ArrayBuffer>[] = []) {
  const posted: Posted = { kind, content, buffers };
  self.postMessage(posted, { transfer: buffers.map(({ buffer }) => buffer) });
}

async function content(name: string) {
  const answer = await fetch(new URL(name, HERE));
  if (!answer.ok) throw new Error(`${name}: ${answer.status} ${answer.statusText}`);
  return answer.arrayBuffer();
}

async function python(): Promise<Python> {
  const { loadPyodide } = await import(new URL("pyodide/pyodide.mjs", HERE).href),
    indexURL = new URL("pyodide/", HERE).href;
  const [py, packages] = await Promise.all([loadPyodide({ indexURL }), content("labengine.zip")]);
  py.unpackArchive(packages, "zip", { extractDir: PACKAGES });
  py.runPython(`import sys; sys.path.insert(0, "${PACKAGES}")`);
  return py;
}

function tell(news: ModelNews) {
  post("model", { ...news });
}

// The real model's weights; only those that are kept here, unless the reader has asked for them.
async function loadModel(page: Page, isAsked: boolean) {
  try {
    const files = await listed();
    if (isAsked || (await areKept(files))) {
      await fill(page, files);
      tell({ state: "loaded" });
    } else tell({ state: "absent" });
  } catch (error) {
    tell({ state: "failed", message: (error as Error).message });
  }
}

async function fill(page: Page, files: Files) {
  const { kernels, at, total } = await fetched(files, (arrived, total) => tell({ state: "loading", arrived, total })),
    refusal = page.load_model(kernels, at, total, files.name, files.digest);
  if (refusal) throw new Error(refusal);
}

async function start() {
  const py = await python(),
    { LivePage } = py.pyimport("labengine.live_page.page"),
    page = LivePage((kind, content, buffers) => post(kind, JSON.parse(content), buffers.toJs()));
  self.onmessage = ({ data }) => {
    if (data.type === "load_model") void loadModel(page, data.is_asked);
    else page.receive(JSON.stringify(data));
  };
  post("ready", {});
}

start().catch((error: Error) => post("failed", { message: error.message }));
