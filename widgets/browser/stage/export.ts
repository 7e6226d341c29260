// A view as a file: its picture as PNG or SVG, its facts as CSV.

import { button, element } from "../look/element.ts";
import type { CsvRow, View } from "../views/view.ts";
import type { Stage } from "./stage.ts";

const SCALE = 2; // pixels of a PNG per pixel on the screen
const XHTML = document.documentElement.namespaceURI;

// A small button that opens the choice.
export function exporter(stage: Stage, name: string, viewOf: () => View | undefined) {
  const open = (isOpen: boolean) => {
    choice.hidden = !isOpen;
    opener.ariaExpanded = String(isOpen);
    csv.hidden = !viewOf()?.csv;
  };
  const kinds = ["PNG", "SVG", "CSV"].map((kind) =>
      button(kind, `save as ${kind}`, () => {
        open(false);
        const view = viewOf();
        if (!view) return;
        save(stage, name, view, kind).catch((error: Error) => stage.emit("failure", `export: ${error.message}`));
      }),
    ),
    csv = kinds[kinds.length - 1],
    choice = element("span", "le-choice", { hidden: true }, ...kinds),
    opener = button("⤓", "save this view as PNG, SVG or CSV", () => open(Boolean(choice.hidden)));
  opener.ariaExpanded = "false";
  return element("span", "le-export", {}, choice, opener);
}

async function save(stage: Stage, name: string, view: View, kind: string) {
  if (kind === "CSV") return download(`${name}.csv`, new Blob([csvOf(view.csv?.() ?? [])], { type: "text/csv" }));
  const svg = svgOf(stage, view.element);
  if (kind === "SVG") return download(`${name}.svg`, new Blob([svg], { type: "image/svg+xml" }));
  return download(`${name}.png`, await pngOf(svg, view.element.getBoundingClientRect()));
}

// A cell that a spreadsheet would take for a formula is kept a text.
function csvOf(rows: CsvRow[]) {
  const cell = (value: unknown) => {
    const text = String(value ?? ""),
      safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

// The element as it stands, with the style sheet's rules that concern it.
function svgOf(stage: Stage, shown: HTMLElement) {
  const { width, height } = shown.getBoundingClientRect(),
    frame = document.createElementNS(XHTML, "div") as HTMLElement,
    sheet = document.createElementNS(XHTML, "style");
  frame.className = stage.root.className;
  frame.style.cssText =
    `display:block;width:${width}px;height:${height}` +
    `px;min-width:0;min-height:0;padding:0;border:0;contain:none;${variablesOf(stage.root)}`;
  sheet.textContent = rules();
  frame.append(sheet, pictureOf(shown));
  const body = new XMLSerializer().serializeToString(frame);
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><foreignObject width="100%" ` +
    `height="100%">${body}</foreignObject></svg>`
  );
}

// A copy; what a canvas shows becomes an image.
function pictureOf(shown: HTMLElement): HTMLElement {
  const copy = shown.cloneNode(true) as HTMLElement,
    canvases = shown instanceof HTMLCanvasElement ? [shown] : shown.querySelectorAll("canvas");
  if (shown instanceof HTMLCanvasElement) return imageOf(shown);
  copy.querySelectorAll("canvas").forEach((one, i) => one.replaceWith(imageOf(canvases[i])));
  return copy;
}

function imageOf(canvas: HTMLCanvasElement) {
  const image = document.createElementNS(XHTML, "img") as HTMLImageElement;
  image.src = canvas.toDataURL();
  image.style.cssText = `width:${canvas.clientWidth}px;height:${canvas.clientHeight}px`;
  return image;
}

function variablesOf(root: HTMLElement) {
  const style = getComputedStyle(root),
    names = ["paper", "ink", "soft", "line", "hair", "accent", "ui-font", "code-font"];
  return names.map((name) => `--le-${name}:${style.getPropertyValue(`--le-${name}`)}`).join(";");
}

function rules() {
  const found = [];
  for (const sheet of document.styleSheets) {
    try {
      for (const rule of sheet.cssRules) if (rule.cssText.includes(".labengine")) found.push(rule.cssText);
    } catch {}
  }
  return found.join("\n");
}

function pngOf(svg: string, { width, height }: DOMRect) {
  return new Promise<Blob>((resolve, reject) => {
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      Object.assign(canvas, { width: width * SCALE, height: height * SCALE });
      canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large"))));
    };
    image.onerror = () => reject(new Error("the picture could not be drawn"));
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  });
}

function download(name: string, blob: Blob) {
  const link = element("a");
  link.href = URL.createObjectURL(blob);
  link.download = `labengine-${name}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
