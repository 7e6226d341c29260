// The way to Python: messages with one JSON document each, plain or gzipped, taken in their order; questions with answers.

const GZIP = [0x1f, 0x8b];

export class Wire {
  // source: {send(message), listen(hear) -> off} of a widget's model, or null in a page without Python.
  constructor(source, hear) {
    Object.assign(this, { source, hear, questions: new Map(), number: 0, queue: null, isClosed: false });
    this.id = Math.random().toString(36).slice(2);
    this.off = source ? source.listen((content, buffers) => this.take(content, buffers)) : () => {};
  }

  get canAsk() {
    return this.source !== null;
  }

  // After a restart of the kernel there is nobody to send to: false.
  send(message) {
    if (!this.source) return false;
    try {
      this.source.send({ view: this.id, ...message });
      return true;
    } catch {
      return false;
    }
  }

  ask(type, fields) {
    if (!this.source) return Promise.reject(new Error("This page has no Python behind it: nothing can be asked."));
    const id = `${++this.number}`;
    return new Promise((resolve, reject) => {
      this.questions.set(id, { resolve, reject });
      if (!this.send({ ...fields, type, id })) this.answer(id, null, new Error("The kernel does not answer."));
    });
  }

  answer(id, payload, error) {
    const question = this.questions.get(id);
    if (!question) return false;
    this.questions.delete(id);
    error ? question.reject(error) : question.resolve(payload);
    return true;
  }

  // A gzipped document takes a moment to unpack: what comes after it waits. A damaged one is left out, and missed later.
  take(content, buffers) {
    const bytes = buffers && buffers.length ? bytesOf(buffers[0]) : null;
    if (!this.queue && !isZipped(bytes)) return this.deliver(content, bytes && parsed(bytes));
    const last = (this.queue = (this.queue || Promise.resolve())
      .then(async () => {
        const payload = bytes && (await unpacked(bytes));
        if (!this.isClosed) this.deliver(content, payload);
      })
      .catch((error) => console.warn("labengine", error))
      .then(() => {
        if (this.queue === last) this.queue = null;
      }));
  }

  deliver(content, payload) {
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

export function bytesOf(buffer) {
  if (typeof buffer === "string") return new TextEncoder().encode(buffer);
  return buffer instanceof ArrayBuffer
    ? new Uint8Array(buffer)
    : new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
}

async function unpacked(bytes) {
  if (!isZipped(bytes)) return parsed(bytes);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function isZipped(bytes) {
  return bytes !== null && bytes[0] === GZIP[0] && bytes[1] === GZIP[1];
}

function parsed(bytes) {
  return JSON.parse(new TextDecoder().decode(bytes));
}
