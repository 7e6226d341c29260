from __future__ import annotations

import re
from random import Random
from xml.etree import ElementTree

import pytest

from labengine import Lab
from labengine import events as ev
from labengine.config import GroupSpec
from labengine.engine.external import HostStore
from labengine.record.fold import Fold, fold
from labengine.record.phases import phase_after
from labengine.record.wording import group_name
from labengine_widgets import block_map, block_map_svg
from labengine_widgets.words.captions import CaptionWriter, caption_rows, captions_of
from labengine_widgets.words.scene import Scene
from labengine_widgets.words.sentences import sentence
from labengine_widgets.words.tier import kept_contents
from recordings import timeline_of
from widgets.story_44409 import before, content, interleaved, narrow
from widgets.words.test_sentences import names_in


def scene_after(events: list[ev.Event]) -> Scene:
    timeline = timeline_of(events)
    scene = Scene(Fold())
    for event in timeline.events():
        scene.apply(event)
        scene.update()
    return scene


def described(step: list[ev.Event]) -> list[str]:
    """The sentences of a step after what went before."""
    first = before()
    timeline = timeline_of([*first, *step])
    return [words for _, words, _ in captions_of(timeline, len(first), timeline.end)]


def test_the_story_says_who_takes_what_from_whom() -> None:
    story = described(interleaved())[1:]
    assert [names_in(line) for line in story] == [
        *("B 8 #1 #2 #4 #5", "B 8", "#1 #2 B", "#5 #4", "2 B #5 #4", "B #4 #5 B", "2 B #6 #3", "1 B #7", "1 B #8"),
        *("B 16", "B #5 #4 #6 #3 #5 #4"),
    ]
    groups = ["full", "", "full", "window", "window", "full", "window"]
    assert [name for line in story[2:9] for name in [*re.findall("(full|window) group", line), ""][:1]] == groups
    assert story[5].endswith("each block is in two tables!")


def test_a_block_in_two_tables_is_seen_as_such() -> None:
    scene = scene_after([*before(), *interleaved()])
    groups = {block_id: scene.owners.groups_of(block_id) for block_id in range(1, 9)}
    assert groups == {1: (0,), 2: (0,), 3: (1,), 4: (0, 1), 5: (0, 1), 6: (1,), 7: (0,), 8: (1,)}
    assert scene.fold.ref_counts[4] == 2
    assert scene.owners.groups_of(9) == ()


def test_null_is_described_alike_for_every_edition_and_is_no_block_in_use() -> None:
    scene, words = scene_after([*before(), *narrow()]), described(narrow())
    assert scene.fold.null_block == 0 and scene.fold.requests[1].block_tables[1] == [0, 5]
    assert names_in(words[1]) == "B 8 #1 #2 #5"
    assert "B's table of the window group begins with 1 null entry" in words[4]
    assert scene.score.used == 3
    assert 0 not in scene.fold.free_queue


def test_the_tier_is_known_by_what_is_saved_and_loaded() -> None:
    timeline = timeline_of([*before(), *interleaved()])
    saved = [(group, content(i)) for group in (0, 1) for i in (0, 1)]
    loaded = [(group, content(i)) for group in (0, 1) for i in (2, 3)]
    assert kept_contents(timeline) == [*saved, *loaded]
    assert kept_contents(timeline, len(before())) == saved
    assert kept_contents(None) == []
    assert list(scene_after([*before(), *interleaved()]).tier) == [*saved, *loaded]


def test_a_violation_and_a_save_do_not_end_the_forward_phase() -> None:
    violation = ev.ViolationFound("read", "wrong", (1,), (4, 5), 2, None)
    for event in (violation, ev.BlocksSaved(1, ())):
        assert phase_after(event, "forward") == "forward"
    again = ev.ViolationFound("read", "too", (1,), (0, 9), 2, None)
    assert described([*interleaved(), violation, again])[-1] == "Rule read is broken: wrong (and 1 more)."


def test_groups_have_names() -> None:
    scene = scene_after(before())
    full, window = scene.fold.groups
    assert [group_name((full, window), i) for i in (0, 1)] == ["full group", "window group"]
    names = [group_name((window, full, window), i) for i in range(3)]
    assert names == ["window group 1", "full group", "window group 2"]
    for event in (ev.BlocksSkipped(1, 1, 3),):
        assert "the window group continues with 3 null entries" in sentence([event], scene)


def test_the_text_picture_shows_groups_nulls_and_blocks_in_two_tables() -> None:
    text = block_map(fold([*before(), *interleaved()]))
    assert "#0 null" in text and "#4 [~]x2!!" in text and "#5 [~]x2!!" in text and "#1 [p]" in text
    assert "      full group   -> #1 #2 #5 #4 #7\n      window group -> #4 #5 #6 #3 #8\n" in text
    assert text.endswith("!! in the tables of two groups: one overwrites the other")
    text = block_map(fold([*before(), *narrow()]))
    assert "      window group -> - #5\n" in text and "!!" not in text


def test_equal_tokens_of_two_groups_are_two_contents() -> None:
    text = block_map(fold(before()))
    assert "p->(#1)  q->(#2)  r->(#4)  s->(#5)" in text


def test_the_svg_shows_the_same() -> None:
    svg = block_map_svg(fold([*before(), *interleaved()]))
    words = [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("B, twice!") == 2 and words.count("null") == 1
    assert "    full group → #1 #2 #5 #4 #7" in words and "    window group → #4 #5 #6 #3 #8" in words
    words = block_map_svg(fold([*before(), *narrow()]))
    assert "window group → – #5" in words and "twice" not in words


@pytest.mark.parametrize("edition", ["labengine", "vllm"])
@pytest.mark.parametrize("seed", range(2))
def test_random_hybrid_runs_are_described(edition: str, seed: int) -> None:
    """Windows, loads, saves, preemption: following shows what a jump to each step shows."""
    random = Random(f"{edition} {seed}")
    groups = (GroupSpec(4), GroupSpec(4, "sliding_window", 9), GroupSpec(4, "sliding_window", 9))
    with Lab("simulated", num_blocks=30, groups=groups, edition=edition, external=HostStore(), seed=seed) as lab:
        timeline = lab.timeline
        assert timeline is not None
        follower = CaptionWriter(timeline)
        for _ in range(40):
            if random.random() < 0.3:
                shared = list(range(1, random.choice([6, 10, 14, 22])))
                lab.add(token_ids=[*shared, random.randint(90, 99)], max_tokens=random.randint(1, 9))
            start = timeline.end
            lab.step()
            words = follower.captions(start, timeline.end)
            assert caption_rows(words) == caption_rows(CaptionWriter(timeline).captions(start, timeline.end))
            assert all(sentence for _, sentence, _ in words)
