// Is this a story about slots? Its guide speaks of them, or a token's keys and values went to another slot than the tables say.

const known = new WeakSet(); // once is enough: what is drawn must not come and go with every moment

export function isAboutSlots({ sides, track }) {
  if (track?.guide?.some((words) => /\bslots?\b/.test(words))) return true;
  for (const { scene, recording } of sides ?? []) if (scene?.strays.size) known.add(recording);
  return Boolean(sides?.some(({ recording }) => known.has(recording)));
}
