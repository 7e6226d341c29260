// The real model's files, from beside this script: fetched once, held against their digests, and kept by the browser.

interface Listed {
  file: string;
  bytes: number;
  sha256: string;
}

export interface Files {
  name: string;
  digest: string;
  kernels: Listed;
  parts: Listed[];
}

const FOLDER = new URL("model/", import.meta.url),
  STORE = "labengine-model";

export async function listed(): Promise<Files> {
  return (await answered("files.json")).json();
}

export const sizeOf = ({ parts }: Files) => parts.reduce((sum, { bytes }) => sum + bytes, 0);

// True if the browser has kept all parts.
export async function areKept({ parts }: Files) {
  const store = await opened();
  if (!store) return false;
  const found = await Promise.all(parts.map((part) => store.match(keyOf(part))));
  return found.every(Boolean);
}

// A file, intact; onBytes gets the number of bytes arrived since its last call.
export async function intact(listed: Listed, onBytes: (count: number) => void = () => {}) {
  const store = await opened(),
    key = keyOf(listed),
    kept = await store?.match(key);
  if (kept) {
    const content = new Uint8Array(await kept.arrayBuffer());
    if (await isAsListed(content, listed)) {
      onBytes(content.length);
      return content;
    }
    await store?.delete(key);
  }
  const content = await fetched(listed, onBytes);
  if (!(await isAsListed(content, listed)))
    throw new Error(`${listed.file} did not arrive intact: its SHA-256 differs from the one this site lists`);
  await store?.put(key, new Response(content)).catch(() => {}); // without room it is fetched again next time
  return content;
}

// Removes what an older version of the site has left.
export async function removeOthers({ kernels, parts }: Files) {
  const store = await opened(),
    wanted = new Set([kernels, ...parts].map(keyOf));
  for (const { url } of (await store?.keys()) ?? []) if (!wanted.has(url)) await store?.delete(url);
}

const keyOf = ({ file, sha256 }: Listed) => new URL(`${file}?${sha256}`, FOLDER).href;

// A browser may refuse to keep anything.
const opened = () => caches.open(STORE).catch(() => null);

async function isAsListed(content: Uint8Array<ArrayBuffer>, { sha256 }: Listed) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("") === sha256;
}

// Past the browser's HTTP cache, which would answer with a damaged file again, and keep a second copy of each.
async function answered(file: string) {
  const answer = await fetch(new URL(file, FOLDER), { cache: "no-store" }).catch(() => {
    throw new Error(`${file} could not be downloaded: the host does not answer`);
  });
  if (!answer.ok) throw new Error(`${file} could not be downloaded: ${answer.status} ${answer.statusText}`);
  return answer;
}

async function fetched({ file, bytes }: Listed, onBytes: (count: number) => void) {
  const reader = (await answered(file)).body?.getReader(),
    content = new Uint8Array(bytes);
  let arrived = 0;
  for (;;) {
    const { done, value } = (await reader?.read().catch(() => {
      throw new Error(`the connection was lost during ${file}`);
    })) ?? { done: true, value: undefined };
    if (done) break;
    if (arrived + value.length > bytes)
      throw new Error(`${file} is longer than the ${bytes} bytes that this site lists`);
    content.set(value, arrived);
    arrived += value.length;
    onBytes(value.length);
  }
  if (arrived < bytes) throw new Error(`${file} ended after ${arrived} of ${bytes} bytes`);
  return content;
}
