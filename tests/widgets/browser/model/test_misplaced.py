"""A token whose KV is written to the wrong slot is drawn there, and missing where attention reads it."""

from __future__ import annotations

import labengine
from labengine.events import SlotsWritten
from labengine.record.fold import Fold
from labengine_widgets.words.sentences import sentence
from widgets.browser.model.drawn_scene import NOTHING, DrawnScene


def test_position_3_goes_to_slot_7() -> None:
    """nano-vLLM PR 71, blocks of 4, a prompt of 3 tokens."""
    with labengine.bug("nano-vllm-71").broken() as lab:
        assert lab.timeline is not None
        events = lab.timeline.events()
    scene = DrawnScene(Fold())
    written = [number for number, event in enumerate(events) if isinstance(event, SlotsWritten)]
    for event in events[: written[1] + 1]:
        scene.apply(event)
    scene.update()
    decode = events[written[1]]
    assert isinstance(decode, SlotsWritten) and scene.misplaced(decode) == [(3, 7, 3)]
    assert scene.cell(0).tokens[3] == NOTHING
    assert scene.cell(1).tokens[:3] == (NOTHING,) * 3 and scene.cell(1).tokens[3] not in ("", NOTHING)
    assert "#1, slot 7" in sentence([decode], scene)


def test_the_original_writes_where_it_will_look() -> None:
    with labengine.bug("nano-vllm-71").fixed() as lab:
        assert lab.timeline is not None
        events = lab.timeline.events()
    scene = DrawnScene(Fold())
    for event in events:
        scene.apply(event)
        if isinstance(event, SlotsWritten):
            assert scene.misplaced(event) == []
