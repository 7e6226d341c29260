// Which events speak of a block, a request or a hash: for filters, and to mark what belongs to the selection.
const ids = {
  block: {
    block_id: (value) => [value],
    into_block_id: (value) => [value],
    mapped: (value) => value,
    block_ids: (value) => value.flat(),
    runs: (value) => value.map((run) => run[0]),
    transfers: (value) => value.map((transfer) => transfer[2]),
  },
  request: { request_id: (value) => [value], request_ids: (value) => value },
};

// (event number) -> whether it speaks of what is selected; null when nothing is.
export function mentions(recording, selection) {
  if (!selection || selection.kind === null || selection.kind === undefined) return null;
  if (selection.kind === "event") return (i) => i === selection.id;
  if (selection.kind === "hash") return hashMatcher(recording, String(selection.id));
  const readers = recording.header.kinds.map(([, ...fields]) => readersOf(fields, ids[selection.kind] ?? {}));
  const wanted = Number(selection.id);
  return (i) => {
    const row = recording.row(i),
      named = readers[row[0]];
    for (let n = 0; n < named.length; n++) if (named[n].read(row[named[n].at]).includes(wanted)) return true;
    return false;
  };
}

// What an event names: {block: [ids], request: [ids], hash: ["group:hex"]}.
export function namedBy(recording, i) {
  const row = recording.row(i),
    [, ...fields] = recording.header.kinds[row[0]],
    named = { block: [], request: [], hash: [] };
  for (const kind of ["block", "request"])
    for (const { at, read } of readersOf(fields, ids[kind])) named[kind].push(...read(row[at]));
  const { hash, group, transfers } = hashPlaces(fields);
  if (hash) named.hash.push(`${row[group]}:${row[hash]}`);
  if (transfers) named.hash.push(...row[transfers].map(([of, , , hex]) => `${of}:${hex}`));
  return named;
}

function readersOf(fields, known) {
  return fields.map((name, i) => ({ at: i + 1, read: known[name] })).filter(({ read }) => read);
}

function hashMatcher(recording, key) {
  const [group, hex] = key.split(":");
  const places = recording.header.kinds.map(([, ...fields]) => hashPlaces(fields));
  return (i) => {
    const row = recording.row(i),
      place = places[row[0]];
    if (place.hash && row[place.hash] === hex) return String(row[place.group]) === group;
    return (
      place.transfers > 0 &&
      row[place.transfers].some((transfer) => transfer[3] === hex && String(transfer[0]) === group)
    );
  };
}

function hashPlaces(fields) {
  return {
    hash: fields.indexOf("block_hash") + 1,
    group: fields.indexOf("group") + 1,
    transfers: fields.indexOf("transfers") + 1,
  };
}
