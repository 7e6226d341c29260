from __future__ import annotations

from labengine import Lab
from labengine.events import BlockAllocated
from labengine.timeline import Timeline
from labengine_widgets.replay import since
from labengine_widgets.runs import MAX_FRAMES
from labengine_widgets.scene import Scene


def test_the_step_that_was_asked_for_is_shown_event_by_event_however_long_the_lab_went_on() -> None:
    with Lab("simulated", num_blocks=64, block_size=4) as lab:
        lab.add(token_ids=range(9), max_tokens=120)
        lab.run()
        timeline = lab.timeline
        assert isinstance(timeline, Timeline)
        moment = next(i for i, event in enumerate(timeline.events()) if isinstance(event, BlockAllocated))
        replay = since(timeline, Scene(lab.fold()), moment)
        assert replay is not None and len(replay["frames"]) <= MAX_FRAMES + 1
        frame = replay["frames"][replay["at"] - 1]
        assert frame["sentence"] == "A takes 3 blocks from the front of the free queue: #0, #1 and #2."
        assert replay["frames"][-1]["sentence"].startswith("Step 120 is over")
