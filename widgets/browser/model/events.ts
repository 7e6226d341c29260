// The kinds of events and their rows. Rows with another order of fields are put in the order of event_rows.ts.

import type { EventFields, EventRows } from "./event_rows.ts";
import { DEFAULTS, FIELDS, PHASES } from "./event_rows.ts";

export type EventKind = keyof EventFields;
export type Phase = "schedule" | "forward" | "sample" | "update";
// A block on its way to or from the external tier: [group, table index, block, hash].
export type Transfer = EventFields["BlocksLoaded"]["transfers"][number];
// The type of a field, whatever the kind of event.
export type FieldValue<Name extends string> = {
  [Kind in EventKind]: Name extends keyof EventFields[Kind] ? EventFields[Kind][Name] : never;
}[EventKind];

// What a recording's header says of its rows: names by index, where each field lies, and how to bring a row into our
// order.
export class Kinds {
  names: string[];
  fields: Map<string, number>[];
  index: Map<string, number>;
  moves: (FieldMove[] | null)[];

  constructor(kinds: KindNames[]) {
    this.names = kinds.map(([name]) => name);
    this.fields = kinds.map(([, ...fields]) => new Map(fields.map((field, i) => [field, i + 1])));
    this.index = new Map(this.names.map((name, i) => [name, i]));
    this.moves = this.names.map((name, i) => move((FIELDS as Record<string, readonly string[]>)[name], this.fields[i]));
  }

  // The row as the fold reads it: itself, unless its kind has its fields elsewhere.
  ordered(row: AnyRow): AnyRow {
    const order = this.moves[row[0]];
    return order ? [row[0], ...order.map(({ at, name }) => (at ? row[at] : DEFAULTS[name]))] : row;
  }
}

// Where a field lies in a row of the recording; undefined where the recording has no such field.
interface FieldMove {
  at: number | undefined;
  name: string;
}

function move(ours: readonly string[] | undefined, theirs: Map<string, number>): FieldMove[] | null {
  if (!ours || ours.every((name, i) => theirs.get(name) === i + 1)) return null;
  return ours.map((name) => ({ at: theirs.get(name), name }));
}

// The phase an event belongs to, given the one before it; null outside a step and at its end.
export function phaseAfter(name: string, phase: Phase | null): Phase | null {
  const own = PHASES[name] ?? "";
  if (own === "schedule") return own;
  if (phase === null || own === "none") return null;
  if (own === "any") return phase;
  if (own === "forward" || (own === "sample" && phase === "forward")) return own;
  return phase === "forward" || phase === "sample" ? "update" : phase;
}

// An event names something that is not there.
export class UnknownThing extends Error {}

// A row of any kind, as it is sent.
export type AnyRow = [kind: number, ...fields: unknown[]];

// A kind's name, and the names of its fields in the order of the rows.
export type KindNames = [name: string, ...fields: string[]];

// A function that takes a row of one kind, as one that takes any row.
type OfAnyRow<Act> = Act extends (...args: infer Args) => infer Result
  ? (...args: { [I in keyof Args]: Args[I] extends EventRows[EventKind] ? AnyRow : Args[I] }) => Result
  : never;

// The entry of a table for an event's kind. The table pairs each kind with its rows; TypeScript cannot know that a row
// read at run time is of the kind that its first field names, so the entry takes any row.
export function entryFor<Entries extends { [Kind in EventKind]?: unknown }>(
  entries: Entries,
  kind: string,
): OfAnyRow<NonNullable<Entries[EventKind & keyof Entries]>> | undefined {
  return entries[kind as EventKind] as OfAnyRow<NonNullable<Entries[EventKind & keyof Entries]>> | undefined;
}
