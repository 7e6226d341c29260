// Pyodide with both packages, in a worker: it loads what lies beside the script, and nothing from anywhere else.
import type { Kernels } from "./kernels.ts";

// The parts of Pyodide that are used here. (Its own declarations need those of Node.)
export interface Python {
  FS: {
    filesystems: { WORKERFS: unknown };
    mkdirTree(path: string): void;
    mount(type: unknown, options: { files: File[] }, path: string): void;
    unmount(path: string): void;
  };
  unpackArchive(archive: ArrayBuffer, format: string, options: { extractDir: string }): void;
  runPython(code: string): unknown;
  pyimport(module: "labengine.live_page.page"): { LivePage(post: Post): Page };
  pyimport(module: "labengine.live_page.doctor_page"): { DoctorPage(post: Post): Receiver };
}
interface Receiver {
  receive(message: string): void;
}
export interface Page extends Receiver {
  load_model(kernels: Kernels, at: number, numBytes: number, name: string, digest: string): string;
}
type Post = (kind: Posted["kind"], content: string, buffers: { toJs(): Uint8Array<ArrayBuffer>[] }) => void;

// What the worker posts: `message` is for a view, all else for the page.
export interface Posted {
  kind: "ready" | "failed" | "opened" | "refused" | "permalink" | "message" | "model" | "progress" | "report";
  content: Record<string, unknown>;
  buffers: Uint8Array<ArrayBuffer>[];
}

const HERE = new URL(".", import.meta.url),
  PACKAGES = "/lib/labengine";

export function post(kind: Posted["kind"], content: Record<string, unknown>, buffers: Uint8Array<ArrayBuffer>[] = []) {
  const posted: Posted = { kind, content, buffers };
  self.postMessage(posted, { transfer: buffers.map(({ buffer }) => buffer) });
}

// Runs the worker's main function; the page hears of its failure.
export function begin(start: (py: Python) => void) {
  python()
    .then((py) => {
      start(py);
      post("ready", {});
    })
    .catch((error: Error) => post("failed", { message: error.message }));
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
