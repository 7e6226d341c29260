// The C kernels in WebAssembly, as Python takes them (labengine/engine/wasm/memory.py).

// Python's bytes, while a call lasts.
interface Bytes {
  getBuffer(): { data: Uint8Array; release(): void };
}

interface Exports {
  memory: WebAssembly.Memory;
  take_memory(numBytes: number): number;
}

export class Kernels {
  exports: Exports;

  // Compiles the module, which imports nothing.
  static async of(module: BufferSource) {
    const { instance } = await WebAssembly.instantiate(module);
    return new Kernels(instance);
  }

  constructor({ exports }: WebAssembly.Instance) {
    (exports._initialize as () => void)();
    this.exports = exports as unknown as Exports;
  }

  // A buffer is detached when the memory grows: so it is taken again each time.
  bytes(at: number, count: number) {
    return new Uint8Array(this.exports.memory.buffer, at, count);
  }

  // The address of new memory.
  take(numBytes: number) {
    const at = this.exports.take_memory(numBytes) >>> 0;
    if (!at) throw new Error(`this page has no ${Math.ceil(numBytes / 1e6)} MB of memory left`);
    return at;
  }

  read(at: number, count: number) {
    return this.bytes(at >>> 0, count).slice();
  }

  write(at: number, content: Bytes) {
    const view = content.getBuffer();
    this.bytes(at >>> 0, view.data.length).set(view.data);
    view.release();
  }
}
