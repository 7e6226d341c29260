// The page without a network: a service worker that keeps the page's files. The network is asked
// first, so that a newer site is seen at once. Weights are kept by weights.ts; JupyterLite has its own worker.

const STORE = "labengine-page",
  FILES = "@FILES@"; // their paths, from the build

addEventListener("install", (event) => {
  event.waitUntil(caches.open(STORE).then((store) => store.addAll(FILES.split(" "))));
});

addEventListener("fetch", (event) => {
  const [address] = event.request.url.split(/[?#]/);
  if (FILES.split(" ").some((file) => new URL(file, registration.scope).href === address))
    event.respondWith(answer(event.request, address));
});

async function answer(request, address) {
  const store = await caches.open(STORE);
  try {
    const fresh = await fetch(request);
    if (fresh.ok) await store.put(address, fresh.clone());
    return fresh;
  } catch {
    return (await store.match(address)) ?? Response.error();
  }
}
