"""Captions of a recording: each at the first moment at which it is true; and events that share one."""

from __future__ import annotations

import re
from random import Random

import pytest

from labengine import Lab
from labengine import events as ev
from labengine.record.phases import phase_after
from labengine.record.timeline import Timeline
from labengine_widgets.words.captions import MAX_FOLLOWED, CaptionWriter, caption_rows, captions_of
from labengine_widgets.words.event_runs import MAX_FRAMES, Run, runs
from labengine_widgets.words.mentions import Mention
from labengine_widgets.words.scene import Scene
from recordings import timeline_of
from widgets.browser.views.view_recordings import tree
from widgets.story_219 import begin, merging_step, overwriting_step
from widgets.words.test_sentences import names_in


def scores(timeline: Timeline, moments: list[int]) -> list[tuple[int, int, int, int]]:
    scene, at, found = Scene(timeline.state(3)), 3, []
    for moment in moments:
        for event in timeline.events(at, moment):
            scene.apply(event)
        scene.update()
        at = moment
        found.append(tuple(scene.score))
    return found


def test_eight_are_seen_before_five() -> None:
    timeline = timeline_of([*begin(), *merging_step()])
    written = captions_of(timeline, 3, timeline.end)
    used = [score[0] for score in scores(timeline, [at for at, _, _ in written])]
    assert used.index(8) < used.index(7) < used.index(6) < used.index(5) and used[-1] == 5
    assert len(written) * 0.3 < 6, "it plays within six seconds"
    assert names_in(written[-1][1]) == "1 5 8", "step, used, peak"


def test_lost_blocks_are_described_one_by_one() -> None:
    timeline = timeline_of([*begin(), *overwriting_step()])
    written = captions_of(timeline, 3, timeline.end)
    lost = [score[3] for score in scores(timeline, [at for at, _, _ in written])]
    assert [number for number in lost if number][:3] == [1, 2, 3]
    assert "B #4 p #0" in [names_in(words) for _, words, _ in written]


def test_moments_rise_and_end_with_the_stretch() -> None:
    timeline = timeline_of([*begin(), *merging_step()])
    moments = [at for at, _, _ in captions_of(timeline, 3, timeline.end)]
    assert moments == sorted(set(moments)) and moments[0] > 3 and moments[-1] == timeline.end


def test_phases_are_read_from_the_events() -> None:
    timeline = timeline_of([*begin(), *merging_step()])
    phases = [phase for _, _, phase in captions_of(timeline, 3, timeline.end)]
    assert list(dict.fromkeys(phases)) == ["schedule", "forward", "update", None]
    assert phase_after(ev.TokenSampled(0, 1, 1), "forward") == "sample"
    assert phase_after(ev.RequestAdded(0, (1,), 1), None) is None


def test_what_a_sentence_names_is_text_for_a_reader_and_an_id_for_a_browser() -> None:
    timeline = timeline_of([*begin(), *merging_step()])
    written = captions_of(timeline, 3, timeline.end)
    [words] = [words for _, words, _ in written if "A's #0 is full" in words]
    row = words.row()
    assert names_in(words) == "A #0 p" and row[::2] == [["request", 0], ["block", 0], ["content", 0]]
    assert row[1] == "'s " and all(isinstance(part, str) for part in row[1::2])
    assert [row[1] for row in caption_rows(written)] == [words.row() for _, words, _ in written]


def test_every_name_of_a_block_or_request_can_be_pointed_at() -> None:
    """No name is left in the text around the mentions."""
    timeline = timeline_of([*begin(), *merging_step()])
    parts = [part for _, words, _ in captions_of(timeline, 3, timeline.end) for part in words.parts]
    assert [part for part in parts if isinstance(part, str) and re.search(r"#\d|\b[AB]\b", part)] == []
    assert {part.kind for part in parts if isinstance(part, Mention)} == {"block", "request", "content"}


def test_a_rolled_back_step_is_described_and_the_next_one_is_as_if_it_had_never_been() -> None:
    broken = [*merging_step()[:12], ev.StepRolledBack(1, "KeyboardInterrupt")]
    timeline = timeline_of([*begin(), *broken, *merging_step()])
    written = captions_of(timeline, 3, timeline.end)
    assert any("KeyboardInterrupt" in words for _, words, _ in written)
    assert names_in(written[-1][1]).startswith("1 5")


def test_runs_keep_every_event_in_order_and_are_bounded() -> None:
    step = merging_step()
    assert [event for run in runs(step) for event in run.events] == step
    many: list[ev.Event] = [ev.TokenSampled(i, 1, 1) for i in range(5000)]
    found = runs(many)
    assert len(found) <= MAX_FRAMES
    assert [event for run in found for event in run.events] == many
    assert runs([ev.TokensComputed(0, 3)]) == [Run((), (ev.TokensComputed(0, 3),))]


@pytest.mark.parametrize("edition", ["labengine", "nano-vllm", "vllm"])
def test_a_step_has_the_same_captions_wherever_the_writer_comes_from(edition: str) -> None:
    """Steps in random order; far ones by a jump, near ones by following."""
    random = Random(edition)
    with Lab("simulated", num_blocks=40, block_size=4, edition=edition) as lab:
        for i in range(60):
            lab.add(token_ids=[1, 2, 3, 4, 5, i, 7, 8, 9], max_tokens=random.randint(2, 9))
        lab.run()
        timeline = lab.timeline
        assert timeline is not None and timeline.end > MAX_FOLLOWED // 4
        steps = [timeline.step_moments(step) for step in range(1, lab.snapshot().step + 1)]
        writer = CaptionWriter(timeline)
        in_order = {span: caption_rows(writer.captions(*span)) for span in steps}
        random.shuffle(steps)
        assert all(caption_rows(writer.captions(*span)) == in_order[span] for span in steps)
        assert writer.opening_sentence(timeline.end).startswith("After step")


def test_a_node_has_one_caption_and_its_blocks_none() -> None:
    timeline = timeline_of(tree(1, 72))
    written = [str(words) for _, words, _ in captions_of(timeline, 0, timeline.end)]
    events = timeline.events()
    for kind, words in ((ev.NodeInserted, "joins the prefix tree"), (ev.NodeEvicted, "leaves the prefix tree")):
        assert sum(words in line for line in written) == sum(isinstance(event, kind) for event in events) > 0
    assert not any("joins the prefix map" in line or "evicted from the prefix cache" in line for line in written)
    assert any("the prefix tree keeps" in line for line in written), "what a request frees is not free"
