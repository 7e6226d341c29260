// What a selection is about: itself, the blocks that a request holds or a hash leads to, and whatever an event names.
import { namedBy } from "./mentions.ts";

const nothing = () => ({ block: new Set(), request: new Set(), hash: new Set() });

// {block: Set of ids, request: Set of ids, hash: Set of "group:hex"} at the moment that the side shows.
export function aboutOf(selection, side) {
  const about = nothing(),
    { scene } = side,
    of = OF[selection?.kind];
  if (!of || !scene || (selection.side ?? side.index) !== side.index) return about;
  of(about, selection.id, side);
  for (const id of about.block)
    if (!(id >= 0 && id < scene.numBlocks) || id === scene.nullBlock) about.block.delete(id);
  return about;
}

const OF = {
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
    if (id < recording.start || id >= recording.end) return;
    for (const [kind, ids] of Object.entries(namedBy(recording, Number(id))))
      for (const one of ids) about[kind].add(one);
  },
};

// Who holds a content, whether the map knows it or not.
function* holders({ contentOfBlock, refCounts }, content) {
  if (content < 0) return;
  for (let id = contentOfBlock.indexOf(content); id >= 0; id = contentOfBlock.indexOf(content, id + 1))
    if (refCounts[id]) yield id;
}
