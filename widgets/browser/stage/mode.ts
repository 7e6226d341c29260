// The relation of a stage's shown moment to its lab: named modes, with a table of transitions.

// loading:   no recording has come yet
// reading:   the reader selected an older moment; new events do not move the view
// attached:  the view shows a moment that the reader or Python selected; new events move it to the newest moment
// following: the lab runs or has just run, and the view moves to each newest moment
// resting:   the lab is paused, and the view shows its newest moment
// opened:    the view was opened at an older moment, which Python selected
export type Mode = "loading" | "reading" | "attached" | "following" | "resting" | "opened";

// ready:          all recordings are there, and no moment was selected yet
// openedAtEnd:    a recording came, to be shown at its newest moment
// openedAtMoment: a recording came, to be shown at an older moment
// wentBack:       the reader, or a play, went to an older moment
// wentToEnd:      the reader, or a play, went to the newest moment
// placed:         Python selected a moment
// labMoved:       new events moved the view to the newest moment
// labRested:      the lab paused
export type ModeEvent =
  | "ready"
  | "openedAtEnd"
  | "openedAtMoment"
  | "wentBack"
  | "wentToEnd"
  | "placed"
  | "labMoved"
  | "labRested";

const OPENED = { openedAtEnd: "resting", openedAtMoment: "opened" } as const;
const MOVED = {
  ...OPENED,
  wentBack: "reading",
  wentToEnd: "attached",
  placed: "attached",
  labMoved: "following",
} as const;

// An event that a mode's row lacks leaves the mode as it is.
export const MODES: Record<Mode, Partial<Record<ModeEvent, Mode>>> = {
  loading: { ...OPENED, ready: "attached" },
  reading: MOVED,
  attached: MOVED,
  following: { ...MOVED, labRested: "resting" },
  resting: MOVED,
  opened: MOVED,
};

export function modeAfter(mode: Mode, event: ModeEvent): Mode {
  return MODES[mode][event] ?? mode;
}

// True if new events move the view to the newest moment.
export function isAlong(mode: Mode): boolean {
  return mode === "attached" || mode === "following" || mode === "resting";
}

// True if the view's moment was set by the lab's events, not by the reader.
export function isBroughtByLab(mode: Mode): boolean {
  return mode === "following" || mode === "resting";
}
