// A recording in a frame of a page: shown by the browser half of the widgets, as high as it is, in the page's colours.
const lab = document.getElementById("lab");
const frame = window.frameElement;

function wear() {
  const scheme = parent.document.body.dataset.mdColorScheme === "slate" ? "dark" : "light";
  document.documentElement.style.colorScheme = scheme;
  document.documentElement.dataset.scheme = scheme;
}

async function unpacked(bytes) {
  if (bytes[0] !== 0x1f) return new TextDecoder().decode(bytes); // a server has unpacked it
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

async function show() {
  const answer = await fetch(new URLSearchParams(location.search).get("of"));
  if (!answer.ok) throw new Error(`${answer.url}: ${answer.status}`);
  const { arrangement, recordings } = JSON.parse(await unpacked(new Uint8Array(await answer.arrayBuffer())));
  const encoded = recordings.map((one) => new TextEncoder().encode(JSON.stringify(one)));
  return labengine.mount(lab, encoded, arrangement);
}

if (frame) {
  wear();
  new MutationObserver(wear).observe(parent.document.body, { attributeFilter: ["data-md-color-scheme"] });
  // Never lower than before: a page that jumps while it is read is worse than an empty strip.
  let height = 0;
  new ResizeObserver(([{ contentRect }]) => {
    height = Math.max(height, Math.ceil(contentRect.height) + 2);
    frame.style.height = `${height}px`;
  }).observe(lab);
}
show().catch((error) => lab.append(`The recording cannot be shown: ${error.message}`));
