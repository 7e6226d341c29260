// A stretch of a block's life as a band: hue shows content, border and hatch show state, letters are owners.

import { hueOf, LOST_HUE } from "../../look/palette.ts";
import { contentName, requestName } from "../../model/names.ts";
import { LIFE, NO_OWNER, SHARED } from "../../model/story.ts";
import type { Ink } from "../canvas.ts";
import type { Rect } from "../view.ts";
import type { Pattern } from "./bar.ts";

// A stretch of a block's life.
interface Life {
  life: number;
  content: number;
  isHashed: boolean;
  owner: number;
  refs: number;
  isSame: boolean;
}

// A stretch of a block's life. In use: solid. Not full yet: grey stripes. Freed but cached: pale, dashed. Lost:
// vermilion hatch.
export function paintLife(ink: Ink, rect: Rect, stretch: Life) {
  const { context, theme } = ink,
    { x, y, w, h } = rect,
    { life, content, isHashed } = stretch,
    color = content >= 0 ? hueOf(content) : theme.soft;
  if (isHashed) ink.fill(x, y, w, h, color, (theme.isDark ? 0.62 : 0.55) * (life === LIFE.cached ? 0.4 : 1));
  else {
    context.globalAlpha = 0.35;
    ink.hatch(rect, theme.ink, 5, 1.4);
    context.globalAlpha = 1;
  }
  if (life === LIFE.lost) ink.hatch(rect, LOST_HUE, 7, 2.5);
  if (h > 4) paintEdges(ink, rect, stretch);
  if (h > 9) paintWords(ink, rect, stretch);
}

// Shared blocks have a second line below, as on a map a road with more lanes.
function paintEdges({ context, theme }: Ink, { x, y, w, h }: Rect, { life, refs }: Life) {
  const isLive = life !== LIFE.cached;
  context.fillStyle = life === LIFE.lost ? LOST_HUE : isLive ? theme.ink : theme.soft;
  const dash = isLive ? w : 4;
  for (let at = x; at < x + w; at += isLive ? w : 7) {
    const length = Math.min(dash, x + w - at);
    context.fillRect(at, y, length, 1);
    context.fillRect(at, y + h - 1, length, 1);
    if (refs > 1 && h > 7) context.fillRect(at, y + h - 3, length, 1);
  }
  if (isLive && w > 2) context.fillRect(x, y, 1, h);
}

function paintWords(ink: Ink, { x, y, w, h }: Rect, { content, owner, refs, life, isSame }: Life) {
  const { theme } = ink,
    isLive = life !== LIFE.cached,
    who = owner === SHARED ? `×${refs}` : owner === NO_OWNER ? "" : requestName(owner),
    name = content < 0 || isSame ? "" : contentName(content);
  const words = [name, isLive ? who : isSame ? "" : "freed"].filter(Boolean).join(" ");
  ink.font({ weight: 600 });
  const text = [words, name].find((one) => one && ink.width(one) <= w - 6);
  if (!text) return;
  if (life === LIFE.lost) ink.fill(x + 2, y + 1, ink.width(text) + 4, h - 2, theme.paper);
  ink.label(text, x + 4, y + h / 2 + 0.5, { weight: 600, color: isLive ? theme.ink : theme.soft });
}

export function legend(): Pattern[] {
  const plain = { life: LIFE.live, content: -1, isHashed: false, owner: NO_OWNER, refs: 1, isSame: true },
    life = (name: string, parts: Partial<Life>): Pattern => ({
      name,
      isOfBlocks: true,
      paint: (ink, rect) => paintLife(ink, rect, { ...plain, ...parts }),
    });
  return [
    life("in use, not hashed", {}),
    life("hashed", { isHashed: true, content: 0 }),
    life("shared", { isHashed: true, content: 0, refs: 2 }),
    life("freed, cached", { isHashed: true, content: 0, life: LIFE.cached, refs: 0 }),
    life("lost", { isHashed: true, content: 0, life: LIFE.lost }),
  ];
}
