// The pictures that a saved notebook shows in place of a view; they are hidden while the view exists.

const OUTPUT = ".jp-OutputArea-child";
const LATE_MS = [0, 200, 1000]; // a page that is loaded again may draw the picture after the view
const live = new Map<string, number>(); // token -> how many views of it there are

// Hides the pictures of a view; returns what shows them again when the last view of it has gone.
export function hidePicture(token: string | undefined) {
  if (!token) return () => {};
  live.set(token, (live.get(token) ?? 0) + 1);
  const timers = LATE_MS.map((ms) => setTimeout(() => show(token, false), ms));
  return () => {
    timers.forEach((timer) => clearTimeout(timer));
    live.set(token, (live.get(token) ?? 1) - 1);
    if (!live.get(token)) show(token, true);
  };
}

function show(token: string, isShown: boolean) {
  for (const picture of document.querySelectorAll<HTMLElement>(`[data-labengine-picture="${CSS.escape(token)}"]`))
    (picture.closest<HTMLElement>(OUTPUT) ?? picture).style.display = isShown ? "" : "none";
}
