// The subjects related to a selection, and the events that name them.

import type { Transfer } from "../model/events.ts";
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
  event(about, id, { recording }) {
    const event = Number(id);
    if (event < recording.start || event >= recording.end) return;
    const named = namedBy(recording, event);
    for (const one of named.block) about.block.add(one);
    for (const one of named.request) about.request.add(one);
    for (const one of named.hash) about.hash.add(one);
  },
};

// The blocks in use that hold a content, registered in the map or not.
function* holders({ contentOfBlock, refCounts }: Scene, content: number) {
  if (content < 0) return;
  for (let id = contentOfBlock.indexOf(content); id >= 0; id = contentOfBlock.indexOf(content, id + 1))
    if (refCounts[id]) yield id;
}

type Readers = Record<string, (value: never) => number[]>;

const ids: { block: Readers; request: Readers } = {
  block: {
    block_id: (value: number) => [value],
    into_block_id: (value: number) => [value],
    mapped: (value: number[]) => value,
    block_ids: (value: number[] | number[][]) => value.flat(),
    runs: (value: [number, number, number][]) => value.map((run) => run[0]),
    transfers: (value: Transfer[]) => value.map((transfer) => transfer[2]),
  },
  request: { request_id: (value: number) => [value], request_ids: (value: number[]) => value },
};

// Whether an event names the selection; null without a selection.
export type Mentions = ((event: number) => boolean) | null;

// (event number) -> whether it names the selection; null without a selection.
export function mentions(recording: Recording, selection: Selection | null): Mentions {
  if (!selection?.kind) return null;
  const { kind } = selection;
  if (kind === "event") return (i) => i === selection.id;
  if (kind === "hash") return hashMatcher(recording, String(selection.id));
  const readers = recording.header.kinds.map(([, ...fields]) => readersOf(fields, ids[kind]));
  const wanted = Number(selection.id);
  return (i) => {
    const row = recording.row(i),
      named = readers[row[0]];
    for (let n = 0; n < named.length; n++) if (named[n].read(row[named[n].at]).includes(wanted)) return true;
    return false;
  };
}

// The subjects of an event: {block: [ids], request: [ids], hash: ["group:hex"]}.
function namedBy(recording: Recording, i: number) {
  const row = recording.row(i),
    [, ...fields] = recording.header.kinds[row[0]],
    named: { block: number[]; request: number[]; hash: string[] } = { block: [], request: [], hash: [] };
  for (const kind of ["block", "request"] as const)
    for (const { at, read } of readersOf(fields, ids[kind])) named[kind].push(...read(row[at]));
  const { hash, group, transfers } = hashPlaces(fields);
  if (hash) named.hash.push(`${row[group]}:${row[hash]}`);
  if (transfers) named.hash.push(...(row[transfers] as Transfer[]).map(([of, , , hex]) => `${of}:${hex}`));
  return named;
}

function readersOf(fields: string[], known: Readers) {
  return fields.flatMap((name, i) => {
    const read = known[name] as ((value: unknown) => number[]) | undefined; // a field's name gives its type
    return read ? [{ at: i + 1, read }] : [];
  });
}

function hashMatcher(recording: Recording, key: string): Mentions {
  const [group, hex] = key.split(":");
  const places = recording.header.kinds.map(([, ...fields]) => hashPlaces(fields));
  return (i: number) => {
    const row = recording.row(i),
      place = places[row[0]];
    if (place.hash && row[place.hash] === hex) return String(row[place.group]) === group;
    return (
      place.transfers > 0 &&
      (row[place.transfers] as Transfer[]).some((transfer) => transfer[3] === hex && String(transfer[0]) === group)
    );
  };
}

function hashPlaces(fields: string[]) {
  return {
    hash: fields.indexOf("block_hash") + 1,
    group: fields.indexOf("group") + 1,
    transfers: fields.indexOf("transfers") + 1,
  };
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
