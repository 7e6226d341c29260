// The connection to Python: messages with one JSON document each, plain or gzipped, taken in order; questions with
// answers.
import type { WireContent } from "../model/payloads.ts";

const GZIP = [0x1f, 0x8b];

export type WireBuffer = ArrayBuffer | ArrayBufferView | string;

// The messages for when Python is gone, and when it does not answer.
interface Absence {
  gone: string;
  silence: string;
}

const KERNEL: Absence = {
  gone: "This lab's kernel is gone: run the cell again to get a new lab.",
  silence: "No answer yet: this is the last known state. If the kernel has lost this lab, run the cell again.",
};

// The connection to a widget's model; `listen` returns a function that ends it.
export interface Source {
  absence?: Absence; // other words than a notebook's
  send(message: Record<string, unknown>): void;
  listen(hear: (content: WireContent, buffers?: WireBuffer[]) => void): () => void;
}

interface Asked {
  resolve: (payload: unknown) => void;
  reject: (error: Error) => void;
}

export class Wire {
  questions = new Map<string, Asked>();
  number = 0;
  queue: Promise<void> | null = null;
  isClosed = false;
  id = Math.random().toString(36).slice(2);
  off: () => void;
  // source: {send(message), listen(hear) -> off} of a widget's model, or null in a page without Python.
  constructor(
    readonly source: Source | null,
    readonly hear: (content: WireContent, payload: unknown) => void,
  ) {
    this.off = source ? source.listen((content, buffers) => this.take(content, buffers)) : () => {};
  }

  get absence() {
    return this.source?.absence ?? KERNEL;
  }

  get canAsk() {
    return this.source !== null;
  }

  // Returns false after a restart of the kernel, when the message has no receiver.
  send(message: Record<string, unknown>) {
    if (!this.source) return false;
    try {
      this.source.send({ view: this.id, ...message });
      return true;
    } catch {
      return false;
    }
  }

  ask(type: string, fields: Record<string, unknown>): Promise<unknown> {
    if (!this.source) return Promise.reject(new Error("This page has no Python to answer questions."));
    const id = `${++this.number}`;
    return new Promise((resolve, reject) => {
      this.questions.set(id, { resolve, reject });
      if (!this.send({ ...fields, type, id }))
        this.answer(id, null, new Error(this.source?.absence?.gone ?? "The kernel does not answer."));
    });
  }

  answer(id: string, payload: unknown, error: Error | null) {
    const question = this.questions.get(id);
    if (!question) return false;
    this.questions.delete(id);
    if (error) question.reject(error);
    else question.resolve(payload);
    return true;
  }

  // A gzipped document takes a moment to unpack: what comes after it waits. All are unpacked at once, because a page
  // that paints all the time has few moments a frame. A damaged one is left out, and missed later.
  take(content: WireContent, buffers: WireBuffer[] | undefined) {
    const bytes = buffers?.length ? bytesOf(buffers[0]) : null;
    if (!this.queue && !isZipped(bytes)) return this.deliver(content, bytes && parsed(bytes));
    const unpacking = bytes && unpacked(bytes);
    unpacking?.catch(() => {}); // it is reported in its turn
    const last = (this.queue = (this.queue || Promise.resolve())
      .then(async () => {
        const payload = await unpacking;
        if (!this.isClosed) this.deliver(content, payload);
      })
      .catch((error) => console.warn("labengine", error))
      .then(() => {
        if (this.queue === last) this.queue = null;
      }));
  }

  deliver(content: WireContent, payload: unknown) {
    if (content.view && content.view !== this.id) return;
    this.hear(content, payload);
    if (content.id !== undefined)
      this.answer(String(content.id), payload, content.error ? new Error(content.error) : null);
  }

  close() {
    this.isClosed = true;
    this.off();
  }
}

export function bytesOf(buffer: WireBuffer): Uint8Array<ArrayBuffer> {
  if (typeof buffer === "string") return new TextEncoder().encode(buffer);
  return buffer instanceof ArrayBuffer
    ? new Uint8Array(buffer)
    : new Uint8Array(buffer.buffer as ArrayBuffer, buffer.byteOffset, buffer.byteLength);
}

export async function unpacked(bytes: Uint8Array<ArrayBuffer>): Promise<unknown> {
  if (!isZipped(bytes)) return parsed(bytes);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function isZipped(bytes: Uint8Array | null): boolean {
  return bytes !== null && bytes[0] === GZIP[0] && bytes[1] === GZIP[1];
}

function parsed(bytes: Uint8Array): unknown {
  return JSON.parse(new TextDecoder().decode(bytes));
}
