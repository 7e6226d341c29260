// Forgetting in a long run, when its oldest events are dropped: hashes without any reference, requests that ended long
// ago.
import type { EventRows } from "./event_rows.ts";
import type { AnyRow, Kinds } from "./events.ts";
import type { Keyframe } from "./keyframe.ts";
import type { SceneState } from "./scene_state.ts";
import type { Shared } from "./shared.ts";

// The data that grows with a recording's length.
interface LongRecording {
  start: number;
  rows: AnyRow[];
  kinds: Kinds;
  head: SceneState;
  keyframes: Keyframe[];
  maxEnded: number;
  shared: Shared;
  names: Map<number, string>;
}

// Forgets everything that neither the oldest state here nor a later event names.
export function forgetOld(recording: LongRecording) {
  const [base] = recording.keyframes,
    { shared } = recording;
  shared.tierLog.forgetBefore(recording.start);
  const ended = [...base.requests.values()].filter(({ status }) => status === "finished").map(({ id }) => id);
  const old = ended.slice(0, Math.max(0, ended.length - recording.maxEnded));
  for (const { requests } of [recording.head, ...recording.keyframes]) for (const id of old) requests.delete(id);
  forgetNames(recording.names, base);
  for (const keyframe of recording.keyframes) keyframe.version = shared.version;
  base.violations = base.violations.filter((i) => i >= recording.start);
  const forgotten = shared.keys.retain(keysInUse(recording, base));
  shared.parents.forget(forgotten);
  for (const { contents } of shared.epochs) contents.forget(forgotten, base.numContents, new Set(base.contentOfBlock));
}

// Numbers of requests only grow: one that is smaller than the oldest state's largest, and not in it, does not return.
function forgetNames(names: Map<number, string>, { requests }: Keyframe) {
  const newest = Math.max(-1, ...requests.keys());
  for (const id of names.keys()) if (id < newest && !requests.has(id)) names.delete(id);
}

// Makes a separate scene follow: it forgets what the newest state no longer knows.
export function forgetEnded(scene: SceneState, head: SceneState, start: number) {
  for (const { id, status } of scene.requests.values())
    if (status === "finished" && !head.requests.has(id)) scene.requests.delete(id);
  scene.violations = scene.violations.filter((i) => i >= start);
  scene.version = scene.shared.version;
}

function keysInUse(recording: LongRecording, base: Keyframe) {
  const { keys, tierLog, parents } = recording.shared,
    tierKeys = tierLog.entries.map(({ key }) => key),
    inUse = new Uint8Array(keys.size);
  const use = (key: number) => {
    if (key >= 0) inUse[key] = 1;
  };
  for (const known of [base.map.keys, base.firstKey, base.evictedById.keys(), tierKeys, ...base.moreKeys.values()])
    for (const key of known) use(key);
  for (const { lastKeys } of base.requests.values()) for (const last of lastKeys) if (last) use(last.key);
  for (const row of recording.rows) useNamed(recording, row, use);
  parents.mark(inUse);
  return inUse;
}

function useNamed({ kinds, shared: { keys } }: LongRecording, row: AnyRow, use: (key: number) => void) {
  const name = kinds.names[row[0]];
  if (name === "BlockCached") {
    const [, , , group, , hex] = kinds.ordered(row) as EventRows["BlockCached"];
    use(keys.known(group, hex));
  } else if (name === "BlocksSaved" || name === "BlocksLoaded") {
    const [, , transfers] = kinds.ordered(row) as EventRows["BlocksSaved"];
    for (const [group, , , hex] of transfers) use(keys.known(group, hex));
  } else if (name === "TierChanged") {
    const [, added, dropped, pinned] = kinds.ordered(row) as EventRows["TierChanged"];
    for (const [group, hex] of [...added, ...dropped, ...pinned]) use(keys.known(group, hex));
  }
}
