// A stretch of a block's life as a band: hue shows content, border and hatch show state, letters are owners.

import { hueOf, LOST_HUE } from "../../look/palette.ts";
import type { Theme } from "../../look/theme.ts";
import { contentName, requestName } from "../../model/names.ts";
import { LIFE, NO_OWNER, SHARED } from "../../model/story.ts";
import { hatch, label } from "../canvas.ts";
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
export function paintLife(
  context: CanvasRenderingContext2D,
  rect: Rect,
  { life, content, isHashed, owner, refs, isSame }: Life,
  theme: Theme,
) {
  const { x, y, w, h } = rect,
    isLive = life !== LIFE.cached;
  context.save();
  if (isHashed) {
    context.globalAlpha = (theme.isDark ? 0.62 : 0.55) * (isLive ? 1 : 0.4);
    context.fillStyle = content >= 0 ? hueOf(content) : theme.soft;
    context.fillRect(x, y, w, h);
  } else {
    context.globalAlpha = 0.35;
    hatch(context, rect, theme.ink, 5, 1.4);
  }
  context.globalAlpha = 1;
  if (life === LIFE.lost) hatch(context, rect, LOST_HUE, 7, 2.5);
  if (h > 4) paintEdges(context, rect, { isLive, life, refs }, theme);
  context.restore();
  if (h > 9) paintWords(context, rect, { content, owner, refs, life, isLive, isSame }, theme);
}

// Shared blocks have a second line below, as on a map a road with more lanes.
function paintEdges(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  { isLive, life, refs }: Pick<Life, "life" | "refs"> & { isLive: boolean },
  theme: Theme,
) {
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

function paintWords(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  { content, owner, refs, life, isLive, isSame }: Omit<Life, "isHashed"> & { isLive: boolean },
  theme: Theme,
) {
  const who = owner === SHARED ? `×${refs}` : owner === NO_OWNER ? "" : requestName(owner),
    name = content < 0 || isSame ? "" : contentName(content);
  const font = `600 12px ${theme.ui}`,
    color = isLive ? theme.ink : theme.soft;
  const words = [name, isLive ? who : isSame ? "" : "freed"].filter(Boolean).join(" ");
  context.font = font;
  const text = [words, name].find((one) => one && context.measureText(one).width <= w - 6);
  if (!text) return;
  if (life === LIFE.lost) {
    context.fillStyle = theme.paper;
    context.fillRect(x + 2, y + 1, context.measureText(text).width + 4, h - 2);
  }
  label(context, text, x + 4, y + h / 2 + 0.5, null, font, color);
}

export function legend(): Pattern[] {
  const life = (name: string, parts: Partial<Life>): Pattern => ({
    name,
    isOfBlocks: true,
    paint: (context, rect, theme) =>
      paintLife(
        context,
        { ...rect, h: rect.h },
        { life: LIFE.live, content: -1, isHashed: false, owner: NO_OWNER, refs: 1, isSame: true, ...parts },
        theme,
      ),
  });
  return [
    life("in use, not hashed", {}),
    life("hashed", { isHashed: true, content: 0 }),
    life("shared", { isHashed: true, content: 0, refs: 2 }),
    life("freed, cached", { isHashed: true, content: 0, life: LIFE.cached, refs: 0 }),
    life("lost", { isHashed: true, content: 0, life: LIFE.lost }),
  ];
}
