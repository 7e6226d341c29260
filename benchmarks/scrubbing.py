"""Measure how long the tree view takes to show another moment of a recording with many nodes.

    python benchmarks/scrubbing.py [--nodes 10000] [--scrubs 200]

Every scrub moves the model and paints the view at a random moment: near the one before (a drag of the scrubber), or
anywhere in the recording (a click on it). Times are the page's processor times: other programs do not count.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random
from statistics import quantiles

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "support")]

from labengine import events as ev  # noqa: E402
from widgets.browser.views.mounted_view import MountedView, show_view  # noqa: E402

BLOCKS, NEAR = 3, 60
SCRUB = """
(moment) => {
  window.goTo(moment);
  mounted.view.canvas.getContext("2d").getImageData(0, 0, 1, 1);
}
"""


def growing_tree(num_nodes: int) -> list[ev.Event]:
    """Return events that build a tree of 64 beginnings, and lock and touch its nodes."""
    rng, num_blocks = Random(0), BLOCKS * num_nodes
    events: list[ev.Event] = [ev.EngineStarted(num_blocks, (("full", 4, None),), "labengine-radix")]
    ends: dict[int, int] = {0: 0}
    paths: dict[int, tuple[int, ...]] = {0: ()}
    for node_id in range(1, num_nodes + 1):
        parent = 0 if node_id <= 64 else rng.randrange(max(1, node_id - 2000), node_id)
        ids = tuple(range(BLOCKS * (node_id - 1), BLOCKS * node_id))
        path = (*paths[parent], node_id)
        ends[node_id], paths[node_id] = ends[parent] + BLOCKS, path
        events += [ev.NodeInserted(node_id, parent, 0, 0, ends[parent], ids), ev.NodeLocked(node_id, node_id)]
        events += [ev.NodesTouched(path), ev.NodeUnlocked(node_id, node_id)]
    return events


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--scrubs", type=int, default=200)
    arguments = parser.parse_args()
    events, rng = growing_tree(arguments.nodes), Random(1)

    def check(mounted: MountedView) -> None:
        metrics = mounted.page.context.new_cdp_session(mounted.page)
        metrics.send("Performance.enable", {"timeDomain": "threadTicks"})

        def milliseconds() -> float:
            found = metrics.send("Performance.getMetrics")["metrics"]
            return next(1000 * one["value"] for one in found if one["name"] == "TaskDuration")

        def scrub(moment: int) -> float:
            before = milliseconds()
            mounted.page.evaluate(SCRUB, moment)
            return milliseconds() - before

        near, at = [], mounted.end - 500
        for _ in range(arguments.scrubs):
            at = max(1, min(mounted.end, at + rng.randint(-NEAR, NEAR)))
            near.append(at)
        far = [rng.randrange(mounted.end // 2, mounted.end) for _ in range(arguments.scrubs // 4)]
        for name, moments in (("near", near), ("far", far)):
            times = quantiles(map(scrub, moments), n=20)
            print(f"{arguments.nodes} nodes, {name}: p50 {times[9]:.1f} ms, p95 {times[18]:.1f} ms")

    show_view(check, "tree", events)


if __name__ == "__main__":
    main()
