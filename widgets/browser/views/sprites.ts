// Small pictures that many cells share: drawn once per theme, size and look, then copied, which costs a tenth.

const MAX_SPRITES = 600;
const sprites = new WeakMap(); // by theme: another theme is another object

// Puts what `draw(context, rect)` paints within a rect onto a canvas, from the cache if it is known by this name.
export function sprite(context, { x, y, w, h }, theme, name, draw) {
  const ratio = context.getTransform().a,
    key = `${name}|${w}|${h}|${ratio}`;
  if (!sprites.has(theme)) sprites.set(theme, new Map());
  const known = sprites.get(theme);
  if (!known.has(key)) {
    if (known.size >= MAX_SPRITES) known.clear();
    known.set(key, drawn(w, h, ratio, draw));
  }
  const picture = known.get(key),
    whole = (at) => Math.round(at * ratio) / ratio; // on whole pixels of the screen nothing is blurred
  context.drawImage(picture, whole(x), whole(y), picture.width / ratio, picture.height / ratio);
}

function drawn(w, h, ratio, draw) {
  const canvas = document.createElement("canvas"),
    context = canvas.getContext("2d");
  Object.assign(canvas, { width: Math.ceil(w * ratio), height: Math.ceil(h * ratio) });
  context.scale(canvas.width / w, canvas.height / h);
  draw(context, { x: 0, y: 0, w, h });
  return canvas;
}
