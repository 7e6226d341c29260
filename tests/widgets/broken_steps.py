"""#219's step with two violations, and after it a step that fails."""

from __future__ import annotations

from labengine import events as ev
from widgets.story_219 import merging_step

CONTRADICTED = ev.ViolationFound(
    "said",
    "event 23 (BlockTouched) says that block 0 left the free queue; it is still in it, at place 3 (WrongTouch.touch)",
    (),
    (0,),
    1,
    23,
    fact=("queue", "block 0 left the free queue", "it is still in it, at place 3"),
)
PARTITION = ev.ViolationFound("partition", "block 7 is in the free queue, and its ref_count is 1", (1,), (7,), 1, 24)
FAILED = ev.StepFailed(2, "RuntimeError", "block 1 is freed twice: its ref_count is 0", "BlockPool.release")
STORY = [*merging_step(), CONTRADICTED, PARTITION, ev.StepStarted(2), FAILED, ev.StepRolledBack(2, "RuntimeError")]
