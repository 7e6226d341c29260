// The real model's GGUF in the memory of its kernels, from where Python loads it (labengine/engine/wasm/model.py).
import { Kernels } from "./kernels.ts";
import type { Files } from "./weights.ts";
import { intact, removeOthers, sizeOf } from "./weights.ts";

const NEWS_MS = 250,
  MIN_GB = 4,
  // A module with one 128-bit vector.
  SIMD = [
    0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11,
  ];

// Why this browser cannot have the model, or an empty text.
export function refusal() {
  if (!globalThis.WebAssembly?.validate(new Uint8Array(SIMD)))
    return "this browser has no WebAssembly SIMD, which the model needs";
  const { deviceMemory = MIN_GB } = navigator as { deviceMemory?: number }; // some browsers do not tell it
  if (deviceMemory < MIN_GB)
    return `this device has ${deviceMemory} GB of memory, and the model is offered only with ${MIN_GB} or more`;
  return isSecureContext ? "" : "a page can only keep and check weights over https";
}

// Fetches what the browser has not kept, and removes what an older version of the site has left.
// tell gets the bytes arrived and those of all parts, a few times a second.
export async function fetched(files: Files, tell: (arrived: number, total: number) => void) {
  const kernels = await Kernels.of(await intact(files.kernels)),
    total = sizeOf(files),
    at = kernels.take(total);
  let arrived = 0,
    filled = 0,
    told = 0;
  const count = (more: number) => {
    arrived += more;
    if (arrived < total && performance.now() - told < NEWS_MS) return;
    told = performance.now();
    tell(arrived, total);
  };
  for (const part of files.parts) {
    const content = await intact(part, count);
    kernels.bytes(at + filled, content.length).set(content);
    filled += content.length;
  }
  await removeOthers(files).catch(() => {}); // nothing that the reader has to know
  return { kernels, at, total };
}
