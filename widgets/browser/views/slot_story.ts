// Is this a story about slots? Its guide speaks of them, or a token's keys and values went to another slot than the
// tables say.
import type { Recording } from "../model/recording.ts";
import type { Stage } from "../stage/stage.ts";

const known = new WeakSet<Recording>(); // once is enough: what is drawn must not come and go with every moment

export function isAboutSlots({ sides, track }: Stage) {
  if (track.guide.some((words) => /slots?/.test(words))) return true;
  for (const { scene, recording } of sides) if (scene?.strays.size) known.add(recording);
  return sides.some(({ recording }) => recording && known.has(recording));
}
