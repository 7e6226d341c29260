// The theme's colours as the style sheet resolved them, read once per theme, for drawing on a canvas.
import { inkOn } from "./palette.ts";

const CHANGES_SETTLE_MS = [0, 200, 800];

// Colours as CSS text, fonts, and the system's preferences.
export interface Theme {
  paper: string;
  ink: string;
  soft: string;
  faint: string;
  line: string;
  accent: string;
  alarm: string;
  ui: string;
  code: string;
  isDark: boolean;
  isStill: boolean;
  isForced: boolean;
}

export function readTheme(root: HTMLElement): Theme {
  const style = getComputedStyle(root);
  const read = (name: string) => style.getPropertyValue(name).trim();
  const color = (name: string) => resolved(root, name),
    paper = color("--le-paper");
  return {
    paper,
    ink: color("--le-ink"),
    soft: color("--le-soft"),
    faint: color("--le-faint"),
    line: color("--le-line"),
    accent: color("--le-accent"),
    alarm: color("--le-alarm"),
    ui: read("--le-ui-font"),
    code: read("--le-code-font"),
    isDark: isDark(paper),
    isStill: matchMedia("(prefers-reduced-motion: reduce)").matches,
    isForced: matchMedia("(forced-colors: active)").matches,
  };
}

// Calls act when the notebook's or the system's theme has changed, again when late style sheets have come; ends with
// the signal.
export function onThemeChange(act: () => void, signal: AbortSignal) {
  const settle = () => CHANGES_SETTLE_MS.forEach((ms) => setTimeout(act, ms));
  const watch = new MutationObserver(settle);
  for (const target of [document.body, document.documentElement])
    watch.observe(target, {
      attributes: true,
      attributeFilter: ["data-jp-theme-name", "data-jp-theme-light", "data-vscode-theme-kind", "class", "style"],
    });
  for (const query of ["(prefers-color-scheme: dark)", "(prefers-reduced-motion: reduce)", "(forced-colors: active)"])
    matchMedia(query).addEventListener("change", settle, { signal });
  signal.addEventListener("abort", () => watch.disconnect());
}

// color-mix and the colours of high contrast are not resolved in a custom property: let an element wear them.
function resolved(root: HTMLElement, name: string) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  probe.style.display = "none";
  root.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}

function isDark(color: string) {
  const context = document.createElement("canvas").getContext("2d") as CanvasRenderingContext2D;
  context.fillStyle = color;
  return inkOn(context.fillStyle.startsWith("#") ? context.fillStyle : "#ffffff") === "#fff";
}
