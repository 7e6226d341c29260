// The relation of a stage's shown moment to its lab: named modes, with a table of transitions.

// loading:   no recording has come yet
// reading:   the reader stands at an older moment; the lab's news leave the view where it is
// attached:  the view stands until the lab goes on, and goes with it then
// following: the lab took the view along, and runs or has just run
// resting:   the view stands at the newest moment, where the lab came to rest
// opened:    the view was opened at an older moment, which Python chose
export type Mode = "loading" | "reading" | "attached" | "following" | "resting" | "opened";

// ready:          all recordings are there, and nobody has said where to stand
// openedAtEnd:    a recording came, to be shown at its newest moment
// openedAtMoment: a recording came, to be shown at an older moment
// wentBack:       the reader, or a play, went to an older moment
// wentToEnd:      the reader, or a play, went to the newest moment
// placed:         Python put the view at a moment
// labMoved:       the lab went on, and took the view along
// labRested:      the lab came to rest
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

// True if the view goes along when the lab goes on.
export function isAlong(mode: Mode): boolean {
  return mode === "attached" || mode === "following" || mode === "resting";
}

// True if the lab, and not the reader, brought the view to its moment.
export function isBroughtByLab(mode: Mode): boolean {
  return mode === "following" || mode === "resting";
}
