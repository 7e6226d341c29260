// The entry: `render` for a widget with a kernel behind it, `mount` for a page that has none.

import { element } from "./look/element.ts";
import { visible } from "./model/hidden_text.ts";
import { counted, joined, listed, readable } from "./model/names.ts";
import type { Varied } from "./model/payloads.ts";
import { phrase, statePhrase } from "./model/phrases.ts";
import { Recording } from "./model/recording.ts";
import { textOf } from "./model/sentence.ts";
import { Side } from "./model/side.ts";
import { STATE_NAMES, storyOf } from "./model/story.ts";
import { layCompare } from "./stage/compare/compare.ts";
import { ASK_STATES } from "./stage/inbox.ts";
import { layDashboard, layViews } from "./stage/layouts.ts";
import { MODES } from "./stage/mode.ts";
import { PLAY_STATES } from "./stage/player.ts";
import { ServedPage } from "./stage/served.ts";
import { offerSliders } from "./stage/sliders.ts";
import { Stage } from "./stage/stage.ts";
import type { Source, WireBuffer } from "./stage/wire.ts";
import { bytesOf } from "./stage/wire.ts";
import { Ink, sprite } from "./views/canvas.ts";
import { axisLabel, scaleOf } from "./views/charts/kinds.ts";
import { VIEWS } from "./views/index.ts";
import { painterFor } from "./views/pool/grid.ts";

// Parts that tests, benchmarks and the browser's console use one by one.
export const internals = {
  Recording,
  Side,
  VIEWS,
  STATE_NAMES,
  phrase,
  statePhrase,
  textOf,
  counted,
  joined,
  listed,
  readable,
  visible,
  MODES,
  PLAY_STATES,
  ASK_STATES,
  storyOf,
  Ink,
  sprite,
  painterFor,
  scaleOf,
  axisLabel,
};

// The layout to show: "dashboard", "compare", or "view" with the names of some views.
export interface Arrangement {
  kind: keyof typeof LAYOUTS;
  views: string[];
  is_plain?: boolean; // in plain terms: for a reader who sees it for the first time
  varied?: Varied | null; // sliders above
}

// The part of anywidget's model that is used here.
interface WidgetModel {
  get(name: "arrangement"): Arrangement | undefined;
  get(name: "picture"): string | undefined;
  get(name: "saved"): WireBuffer[] | undefined;
  send(message: Record<string, unknown>): void;
  on(name: string, act: (...details: never[]) => void): void;
  off(name: string, act: (...details: never[]) => void): void;
}

const OUTPUT = ".jp-OutputArea-child";
const LATE_MS = [0, 200, 1000]; // a page that is loaded again may draw the picture after the view
const live = new Map<string, number>(); // token -> how many views of it there are

const DASHBOARD: Arrangement = { kind: "dashboard", views: [] };

function makeRoot(el: HTMLElement, { kind }: Arrangement) {
  const ariaLabel = `labengine ${kind}. Press question mark for the keys.`,
    root = element("div", `labengine labengine-${kind}`, { tabIndex: 0, role: "application", ariaLabel });
  root.dataset.lmSuppressShortcuts = "true";
  el.append(root);
  return root;
}

function sourceOf(model: WidgetModel): Source {
  return {
    send: (message) => model.send(message),
    listen(hear) {
      model.on("msg:custom", hear);
      return () => model.off("msg:custom", hear);
    },
  };
}

// The saved state first, so that a notebook without a kernel shows it; then the lab's own, if it answers.
export function render({ model, el }: { model: WidgetModel; el: HTMLElement }) {
  const arrangement = model.get("arrangement") || DASHBOARD,
    root = makeRoot(el, arrangement);
  const stage = new Stage(root, sourceOf(model), arrangement.kind === "compare" ? 2 : 1);
  lay(stage, root, arrangement);
  const showPicture = hidePicture(model.get("picture"));
  const onConnection = () => stage.inbox.resync(true);
  model.on("comm_live_update", onConnection);
  beginAll(stage, model.get("saved") || []);
  stage.inbox.resync();
  return () => {
    model.off("comm_live_update", onConnection);
    stage.close();
    showPicture();
  };
}

// recording: a `full` payload as bytes, plain or gzipped. Two sides and their joint words come as a list of three; an
// empty list waits for the source. source: of a page that has Python; without one nothing can be asked.
export async function mount(
  el: HTMLElement,
  recording: WireBuffer | WireBuffer[],
  arrangement: Arrangement = DASHBOARD,
  source: Source | null = null,
) {
  const root = makeRoot(el, arrangement),
    stage = new Stage(root, source, arrangement.kind === "compare" ? 2 : 1);
  lay(stage, root, arrangement);
  beginAll(stage, Array.isArray(recording) ? recording : [recording]);
  await stage.wire.queue;
  return stage;
}

// A dashboard for each stream of a page that a server of labengine's serves; data-number says how many.
export async function serve(el: HTMLElement) {
  const page = new ServedPage(new URL("messages", location.href), Number(el.dataset.number)),
    stages = await Promise.all(page.sources.map((source) => mount(el, [], DASHBOARD, source)));
  for (const stage of stages) stage.inbox.resync();
  if (stages.length === 1) stages[0].root.focus({ preventScroll: true });
  try {
    await page.follow(() => stages.forEach((stage) => stage.inbox.resync(true)));
    for (const stage of stages) stage.emit("gone");
  } catch (error) {
    for (const stage of stages) stage.close();
    el.append(element("p", "served-refusal", (error as Error).message));
  }
}

// One payload per side, and in a view of two labs their joint words. They take their turn: what the lab says is newer.
function beginAll({ wire, sides }: Stage, saved: WireBuffer[]) {
  for (const [i, buffer] of saved.entries())
    if (bytesOf(buffer).length) wire.take(i < sides.length ? { type: "full", side: i } : { type: "compare" }, [buffer]);
}

function lay(stage: Stage, root: HTMLElement, arrangement: Arrangement) {
  LAYOUTS[arrangement.kind](stage, root, arrangement);
  offerSliders(stage, arrangement.varied);
}

// The arrangements by name.
export const LAYOUTS = { compare: layCompare, dashboard: layDashboard, view: layViews };

// Hides the pictures that a saved notebook shows instead of a view; returns what shows them again when the last view
// of it has gone.
function hidePicture(token: string | undefined) {
  if (!token) return () => {};
  live.set(token, (live.get(token) ?? 0) + 1);
  const timers = LATE_MS.map((ms) => setTimeout(() => showPictures(token, false), ms));
  return () => {
    timers.forEach((timer) => clearTimeout(timer));
    live.set(token, (live.get(token) ?? 1) - 1);
    if (!live.get(token)) showPictures(token, true);
  };
}

function showPictures(token: string, isShown: boolean) {
  for (const picture of document.querySelectorAll<HTMLElement>(`[data-labengine-picture="${CSS.escape(token)}"]`))
    (picture.closest<HTMLElement>(OUTPUT) ?? picture).style.display = isShown ? "" : "none";
}
