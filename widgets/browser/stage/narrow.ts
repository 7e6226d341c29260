// A layout that has another arrangement in a narrow cell: the class le-is-narrow while the root is narrower than the
// limit (pixels).
import type { Stage } from "./stage.ts";

export function watchWidth(stage: Stage, root: HTMLElement, limit: number) {
  const sizes = new ResizeObserver(() => {
    const isNarrow = root.clientWidth < limit;
    if (stage.isNarrow === isNarrow) return;
    stage.isNarrow = isNarrow;
    root.classList.toggle("le-is-narrow", isNarrow);
    stage.repaint();
  });
  sizes.observe(root);
  stage.end.signal.addEventListener("abort", () => sizes.disconnect());
}
