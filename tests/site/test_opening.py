"""The front page's picture: what it says of its step is what happens in it."""

from __future__ import annotations

import json
from gzip import decompress
from typing import Any

import pytest

from labengine import events as ev
from labengine.lab import Lab
from labengine_widgets.words.mentions import Mention
from tools.site.opening import BLOCK_SIZE, NUM_BLOCKS, QUESTION, opening, sentences


@pytest.fixture
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(decompress(opening()))
    return found


def test_the_sentences_are_the_stops_of_the_step_in_order(document: dict[str, Any]) -> None:
    moments = [moment for moment, _, _ in document["told"]]
    assert moments == sorted(set(moments)) and (moments[0], moments[-1]) == (document["asked"], document["plays_to"])
    assert document["used"] == 5


def test_each_sentence_is_true_at_its_moment() -> None:
    with Lab("simulated", num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE) as lab:
        for _ in range(2):
            lab.add(QUESTION, max_tokens=8)
        timeline = lab.timeline
        assert timeline is not None
        asked = timeline.end
        lab.step()
        told = sentences(timeline, asked)
        used = [timeline.state(moment).num_used_blocks for moment, _ in told]
        assert used == [0, 8, 8, 7, 6, 5, 5]
        for moment, words in told[3:6]:
            copy = next(
                event for event in reversed(timeline.events(asked, moment)) if isinstance(event, ev.BlockMerged)
            )
            state = timeline.state(moment)
            blocks = {part.number for part in words.parts if isinstance(part, Mention) and part.kind == "block"}
            assert blocks == {copy.block_id, copy.into_block_id}
            assert (state.ref_counts[copy.into_block_id], state.ref_counts[copy.block_id]) == (2, 0)
        assert "merge" in str(told[3][1]), "the word stands where the first copy goes"
