// The view interface: an element that shows one recording, painted by changes.

import type { Theme } from "../look/theme.ts";
import type { Answer, Selection } from "../model/payloads.ts";
import type { Scene } from "../model/scene.ts";
import type { Changes } from "../model/scene_state.ts";
import type { Side } from "../model/side.ts";

export interface Point {
  x: number;
  y: number;
}

export interface Rect extends Point {
  w: number;
  h: number;
}

// An element's edges.
export interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

// The subject of an element on screen. about: the question of a click on it ("ref_count", "event").
export interface Subject extends Selection {
  about?: string;
}

// The moment that a paint shows, and how the view came there.
export interface PaintMoment {
  moment: number;
  from?: number; // the moment painted before
  since?: number; // the moment before the current events
  isPlaying?: boolean;
  isRunning?: boolean; // the lab runs by itself, and the view follows it
  reference?: Scene | null; // the state to compare with
  focus?: number[]; // blocks that the current events are about
}

export type CsvRow = unknown[];

// The stage's interface for its views.
export interface ViewHost {
  sides: Side[];
  isPair: boolean;
  isLive: boolean;
  isPlain: boolean; // for a reader who sees this for the first time: no letters, no counts
  selection: Selection | null;
  theme: Theme;
  track: {
    isAboutSlots: boolean; // the story that is told
    whyDifferent: Answer | null; // the answer to why the first difference is there
    positionAt(side: number, moment: number): number;
  };
  wire: { canAsk: boolean };
  askWhy?(about?: string, side?: number): void; // asks why, where the layout has a place for answers
  select(selection: Selection | null): void;
  moveTo(position: number): void;
  repaint(): void;
  ask(type: string, fields?: Record<string, unknown>): Promise<unknown>;
  askOlder(): void;
}

export interface View {
  element: HTMLElement;
  paint(scene: Scene, changes: Changes, at: PaintMoment): void;
  mark(selection: Selection | null): void;
  destroy(): void;
  settle?(): void; // after all views are painted: measure the page here
  resize?(): void;
  point?(subject: Subject | null): void;
  at?(event: MouseEvent): Subject | null; // what a mouse event is about, where no element says so
  csv?(): CsvRow[];
  middleOf?(anchor: string): Point | null;
  tileOf?(block: number): Box | null;
  entriesOf?(block: number): HTMLElement[];
  prefer?(about: string | undefined): void; // of the view that answers why: the next question
  showAnswer?(answer: Answer): void;
  links?: unknown;
  canvas?: HTMLCanvasElement;
  frame?: HTMLElement; // which scrolls, where the element does not
}

export interface ViewModule {
  title: string;
  create(stage: ViewHost, side: Side): View;
}

// An event as a selection: in a view of two labs it is one of a side.

export function eventOf(stage: ViewHost, side: Side, id: number): Selection {
  return stage.isPair ? { kind: "event", id, side: side.index } : { kind: "event", id };
}

// Moves to a moment of one side. In a view of two labs a position is not a moment: its track knows which one shows it.
export function moveToMoment(stage: ViewHost, side: Side, moment: number) {
  stage.moveTo(stage.track.positionAt(side.index, moment));
}
