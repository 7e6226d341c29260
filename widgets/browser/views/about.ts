// What a selection is about: itself, the blocks that a request holds or a hash leads to, and whatever an event names.
import type { Selection } from "../model/payloads.ts";
import type { Scene } from "../model/scene.ts";
import type { Side } from "../model/side.ts";
import { namedBy } from "./mentions.ts";

// The things that a selection is about.
export interface About {
  block: Set<number>;
  request: Set<number>;
  hash: Set<string>;
}

const nothing = (): About => ({ block: new Set(), request: new Set(), hash: new Set() });

// {block: Set of ids, request: Set of ids, hash: Set of "group:hex"} at the moment that the side shows.
export function aboutOf(selection: Selection | null, side: Side): About {
  const about = nothing(),
    { scene } = side;
  if (!selection || !side.hasRecording || (selection.side ?? side.index) !== side.index) return about;
  OF[selection.kind]?.(about, selection.id, side);
  for (const id of about.block)
    if (!(id >= 0 && id < scene.numBlocks) || id === scene.nullBlock) about.block.delete(id);
  return about;
}

const OF: Record<Selection["kind"], (about: About, id: number | string, side: Side) => void> = {
  block: ({ block }, id) => block.add(Number(id)),
  request({ block, request }, id, { scene }) {
    request.add(Number(id));
    for (const table of scene.requests.get(Number(id))?.tables ?? []) for (const held of table) block.add(held);
  },
  hash({ block, hash }, id, { scene }) {
    hash.add(String(id));
    for (const served of scene.map.get(String(id)) ?? []) block.add(served);
    for (const twin of holders(scene, scene.contentOf(String(id)))) block.add(twin);
  },
  event(about, id, { recording }) {
    const event = Number(id);
    if (event < recording.start || event >= recording.end) return;
    const named = namedBy(recording, event);
    for (const one of named.block) about.block.add(one);
    for (const one of named.request) about.request.add(one);
    for (const one of named.hash) about.hash.add(one);
  },
};

// Who holds a content, whether the map knows it or not.
function* holders({ contentOfBlock, refCounts }: Scene, content: number) {
  if (content < 0) return;
  for (let id = contentOfBlock.indexOf(content); id >= 0; id = contentOfBlock.indexOf(content, id + 1))
    if (refCounts[id]) yield id;
}
