// The subjects related to a selection, and the events that name them.

import type { AnyRow, Transfer } from "../model/events.ts";
import type { Selection } from "../model/payloads.ts";
import type { Recording } from "../model/recording.ts";
import type { Scene } from "../model/scene.ts";
import type { Side } from "../model/side.ts";

// The subjects related to a selection.
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
  if (!selection || (selection.side ?? side.index) !== side.index) return about;
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
  node({ block, request }, id, { scene: { tree } }) {
    for (const one of tree.nodes.get(Number(id))?.blocks ?? []) block.add(one);
    for (const [holder, held] of tree.holds) if (tree.path(held).includes(Number(id))) request.add(holder);
  },
  event(about, id, { recording, scene }) {
    const event = Number(id);
    if (event < recording.start || event >= recording.end) return;
    for (const kind of ["block", "request", "hash"] as const)
      for (const one of namedBy(recording, event, kind)) (about[kind] as Set<number | string>).add(one);
    for (const node of namedBy(recording, event, "node"))
      for (const one of scene.tree.nodes.get(Number(node))?.blocks ?? []) about.block.add(one);
  },
};

// The blocks in use that hold a content, registered in the map or not.
function* holders({ contentOfBlock, refCounts }: Scene, content: number) {
  if (content < 0) return;
  for (let id = contentOfBlock.indexOf(content); id >= 0; id = contentOfBlock.indexOf(content, id + 1))
    if (refCounts[id]) yield id;
}

type Values = (value: never, group: unknown) => (number | string)[];

// Values of fields that name a subject.
const NAMED: Record<keyof About | "node", Record<string, Values>> = {
  block: {
    block_id: (value: number) => [value],
    into_block_id: (value: number) => [value],
    mapped: (value: number[]) => value,
    block_ids: (value: number[] | number[][]) => value.flat(),
    runs: (value: [number, number, number][]) => value.map((run) => run[0]),
    transfers: (value: Transfer[]) => value.map((transfer) => transfer[2]),
    misnamed: (value: [number, number, string, string][]) => value.map((one) => one[0]),
  },
  request: { request_id: (value: number) => [value], request_ids: (value: number[]) => value },
  node: {
    node_id: (value: number) => [value],
    upper_id: (value: number) => [value],
    node_ids: (value: number[]) => value,
  },
  hash: {
    block_hash: (value: string, group) => [`${group}:${value}`],
    transfers: (value: Transfer[]) => value.map(([group, , , hash]) => `${group}:${hash}`),
  },
};

// Whether an event names the selection; null without a selection.
export type Mentions = ((event: number) => boolean) | null;

// (event number) -> whether it names the selection; null without a selection.
export function mentions(recording: Recording, selection: Selection | null): Mentions {
  if (!selection?.kind) return null;
  const { kind, id } = selection;
  if (kind === "event") return (i) => i === id;
  const readers = recording.header.kinds.map(([, ...fields]) => readersOf(fields, kind)),
    wanted = kind === "hash" ? String(id) : Number(id);
  return (i) => {
    const row = recording.row(i);
    return readers[row[0]].some((read) => read(row).includes(wanted));
  };
}

// The subjects of a kind that an event names.
export function namedBy(recording: Recording, i: number, kind: keyof typeof NAMED) {
  const row = recording.row(i),
    [, ...fields] = recording.header.kinds[row[0]];
  return readersOf(fields, kind).flatMap((read) => read(row));
}

function readersOf(fields: string[], kind: keyof typeof NAMED) {
  const group = fields.indexOf("group") + 1;
  return fields.flatMap((name, i) => {
    const read = NAMED[kind][name]; // a field's name gives its type
    return read ? [(row: AnyRow) => read(row[i + 1] as never, row[group])] : [];
  });
}

// The events that name the selection, searched once per selection and then in new events only.

export class Mentioned {
  events: number[] = [];
  name = "";
  start = 0;
  end = 0;

  find(recording: Recording, selection: Selection | null) {
    const name = `${recording.header.lab} ${JSON.stringify(selection)}`,
      names = mentions(recording, selection);
    if (name !== this.name || recording.start !== this.start || recording.end < this.end) {
      this.events = [];
      this.end = recording.start;
    }
    if (names) for (let i = this.end; i < recording.end; i++) if (names(i)) this.events.push(i);
    this.name = name;
    this.start = recording.start;
    this.end = recording.end;
    return this.events;
  }
}
