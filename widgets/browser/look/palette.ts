// Colour is content: Okabe and Ito's palette, which people of all colour vision can tell apart. Vermilion means lost,
// and only that.
export const HUES = ["#56b4e9", "#009e73", "#f0e442", "#cc79a7", "#0072b2", "#e69f00"];
export const LOST_HUE = "#d55e00";

export function hueOf(number: number) {
  return HUES[number % HUES.length];
}

// Contents that share a hue differ in texture: 0 plain, 1 bars, 2 dots.
export function roundOf(number: number) {
  return number < 0 ? 0 : Math.floor(number / HUES.length) % 3;
}

// A request's badge has a distinct shape besides its letter.
const SHAPES = ["disc", "diamond", "square", "hexagon"];
export function shapeOf(request: number) {
  return SHAPES[request % SHAPES.length];
}

// Black or white, whichever reads better on a colour given as #rrggbb.
export function inkOn(hex: string) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#000" : "#fff";
}
