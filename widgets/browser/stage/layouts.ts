// The layouts for one lab: the dashboard, with everything at once, and single views with a sentence and a scrubber.

import { element, put } from "../look/element.ts";
import type { Side } from "../model/side.ts";
import { VIEWS } from "../views/index.ts";
import { AskedQuestion } from "./asked.ts";
import { Difference } from "./changes_since_mark.ts";
import { Controls, Notice } from "./controls.ts";
import { CaptionLine, Head, MomentData } from "./head.ts";
import { Keys, onKey } from "./keyboard.ts";
import { overflowOf } from "./overflow.ts";
import type { Panel } from "./panel.ts";
import { Drawer, panel } from "./panel.ts";
import { PlainCaptions } from "./plain_captions.ts";
import { Presentation } from "./presentation.ts";
import { Scrubber } from "./scrubber.ts";
import { overlay } from "./slides.ts";
import type { Stage } from "./stage.ts";
import { Texts } from "./texts.ts";
import { Told } from "./told.ts";
import { SoloTrack } from "./track.ts";
import { watchWidth } from "./visibility.ts";

const NARROW = 640; // below it the panels stand one above the other
const READABLE = 300; // the least width of one view beside others
const PANELS = ["pool", "tables", "map", "tree", "queue", "tier"];
const DRAWN = ["timeline", "step", "log", "why", "charts"];

// Everything about one lab at once: pool, tables, map or tree, queue and tier; a drawer for the rest; time and controls
// below.
// views: of a dashboard for a reader who has not met the others yet; empty for all.
export function layDashboard(stage: Stage, root: HTMLElement, { views }: Shown) {
  const keys = new Keys(stage),
    layer = overlay(stage),
    controls = new Controls(stage),
    scrubber = new Scrubber(stage),
    asked = new AskedQuestion(stage);
  const head = new Head(stage, keys),
    caption = new CaptionLine(stage),
    main = element("div", "le-main"),
    side = element("div", "le-side"),
    lower = element("div", "le-lower");
  const isShown = (name: string) => !views.length || views.includes(name),
    panels = Object.fromEntries(PANELS.filter(isShown).map((name) => [name, panel(stage, name)]));
  const { pool, tables, tier, ...others } = panels;
  lower.append(...Object.values(others), ...shown(tier));
  side.append(...shown(tables), ...(lower.childElementCount ? [lower] : []));
  main.append(...shown(pool), ...(side.childElementCount ? [side] : []));
  const drawer = new Drawer(stage, DRAWN.filter(isShown)),
    presentation = new Presentation(stage, controls.step, keys);
  root.append(
    head.element,
    caption.element,
    asked.element,
    main,
    scrubber.element,
    controls.element,
    controls.message,
    drawer.element,
    layer,
    keys.element,
  );
  for (const part of [
    head,
    caption,
    asked,
    scrubber,
    controls,
    new MomentData(stage, scrubber),
    new Told(stage),
    new Difference(stage, (words) => scrubber.showChanges(words)),
  ])
    stage.add(part);
  root.addEventListener("keydown", (event) => onKey(event, { stage, controls, scrubber, keys, presentation }));
  const signs = Object.entries(panels).map(([name, made]) => name !== "pool" && overflowOf(made, name));
  stage.add({ paint: () => signs.forEach((sign) => sign && !stage.painting.isHurried && sign.paint()) });
  if (tier) stage.add({ paint: () => put(tier, "hidden", !stage.sides[0].recording.hasTier) });
  const showTree = treeOrMap(panels, stage.sides[0]);
  stage.add({ paint: () => root.classList.toggle("le-has-tree", showTree()) });
  stage.drawer = drawer;
  stage.askWhy = (about) => drawer.askWhy(about);
  watchWidth(stage, root, NARROW);
  stage.open([
    [caption.element, 0.6],
    [main, 0.3],
  ]);
}

// The tree stands where the map is in an edition without one; only one of them is painted. Returns a function that
// shows the right one, and returns true for the tree.
export function treeOrMap({ map, tree }: Record<string, Panel | undefined>, side: Side, isShown = () => true) {
  if (map) map.shown.isShown = () => isShown() && !side.recording.hasTree;
  if (tree) tree.shown.isShown = () => isShown() && side.recording.hasTree;
  return () => {
    const { hasTree } = side.recording;
    if (map) put(map, "hidden", hasTree);
    if (tree) put(tree, "hidden", !hasTree);
    return hasTree;
  };
}

function shown(made: Panel | undefined) {
  return made ? [made] : [];
}

interface Shown {
  views: string[];
  is_plain?: boolean;
}

// One view, or a few, of one lab, without the controls.
export function layViews(stage: Stage, root: HTMLElement, { views, is_plain = false }: Shown) {
  stage.isPlain = is_plain;
  root.classList.toggle("le-is-plain", is_plain);
  const keys = new Keys(stage),
    layer = overlay(stage),
    scrubber = new Scrubber(stage),
    caption = new CaptionLine(stage),
    asked = new AskedQuestion(stage),
    main = element("div", "le-main"),
    texts = is_plain ? [new Texts(stage)] : [];
  if (is_plain && stage.track instanceof SoloTrack) stage.track.captions = new PlainCaptions(stage.track);
  const panels = views.filter((name) => name in VIEWS).map((name) => panel(stage, name));
  main.append(...panels);
  root.classList.add("le-single");
  const signs = panels.map((made, i) => overflowOf(made, views[i]));
  watchWidth(stage, root, 0, (width) => {
    const most = Math.max(1, Math.floor(width / READABLE)),
      numRows = Math.max(1, Math.ceil(panels.length / most));
    root.style.setProperty("--le-num-rows", String(numRows));
    root.style.setProperty("--le-num-columns", String(Math.ceil(panels.length / numRows)));
  });
  root.append(
    asked.element,
    caption.element,
    ...texts.map((one) => one.element),
    main,
    scrubber.element,
    new Notice(stage).element,
    layer,
    keys.element,
  );
  for (const part of [
    caption,
    asked,
    ...texts,
    scrubber,
    new MomentData(stage, scrubber),
    new Told(stage),
    new Difference(stage, (words) => scrubber.showChanges(words)),
    { paint: () => signs.forEach((sign) => !stage.painting.isHurried && sign?.paint()) },
  ])
    stage.add(part);
  root.addEventListener("keydown", (event) => onKey(event, { stage, scrubber, keys }));
  stage.open([
    [caption.element, 0.6],
    [main, 0.3],
  ]);
}
