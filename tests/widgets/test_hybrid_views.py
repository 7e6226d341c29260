from __future__ import annotations

from random import Random
from xml.etree import ElementTree

import pytest

from labengine import Lab
from labengine import events as ev
from labengine.config import GroupSpec
from labengine.engine.external import HostStore
from labengine.fold import Fold, fold
from labengine.timeline import Timeline
from labengine_widgets import block_map, block_map_svg
from labengine_widgets.frames import FrameMaker
from labengine_widgets.names import group_name
from labengine_widgets.runs import phase_after, runs
from labengine_widgets.scene import Scene
from labengine_widgets.sentences import sentence
from labengine_widgets.tier import kept_contents
from widgets.seen import Seen, everything
from widgets.story_44409 import before, content, interleaved, narrow


def maker_after(events: list[ev.Event]) -> FrameMaker:
    maker = FrameMaker(Scene(Fold()))
    maker.follow(events)
    return maker


def played(step: list[ev.Event]) -> tuple[FrameMaker, Seen, list[str]]:
    maker = maker_after(before())
    seen, told = everything(maker), []
    for run in runs(step):
        seen.apply(maker.play(run))
        told.append(maker.sentence)
    return maker, seen, told


def test_the_story_says_who_takes_what_from_whom() -> None:
    _, _, told = played(interleaved())
    assert told[1:] == [
        "B finds its first 8 tokens in the cache, in #1, #2, #4 and #5: no need to compute them.",
        "The external tier holds B's next 8 tokens: no need to compute them either.",
        "B takes #1 and #2 back out of the free queue for the full group, content and all.",
        "#5 and #4 are needed anew: what they held is forgotten, in the hash map too.",
        "B takes 2 blocks from the front of the free queue for the full group: #5 and #4.",
        "B takes #4 and #5 for the window group, but another of its groups has them: each stands in two tables!",
        "B takes 2 blocks from the front of the free queue for the window group: #6 and #3.",
        "B takes a block from the front of the free queue for the full group: #7.",
        "B takes a block from the front of the free queue for the window group: #8.",
        "B will compute the token at position 16 in this step.",
        "Keys and values come from the external tier into #5, #4, #6 and #3, for B;"
        " #5 and #4 stand in another group's table too.",
    ]


def test_a_block_in_two_tables_is_sent_as_such() -> None:
    maker, seen, _ = played(interleaved())
    groups = {block_id: cell[7] for block_id, cell in seen.blocks.items()}
    assert groups == {1: [0], 2: [0], 3: [1], 4: [0, 1], 5: [0, 1], 6: [1], 7: [0], 8: [1]}
    assert seen.blocks[4][1] == 2 and seen.blocks[4][5] == [1]
    assert maker.scene.groups_of(9) == ()


def test_null_is_told_alike_for_every_edition_and_is_no_block_in_use() -> None:
    maker, seen, told = played(narrow())
    assert seen.rows["1:1"]["table"] == [-1, 5] and maker.full()["null_block"] == 0
    assert told[1].startswith("B finds its first 8 tokens in the cache, in #1, #2 and #5:")
    assert told[4].startswith("B's first block lies outside the window group's window: nobody will read")
    assert seen.head["score"][0] == 3
    assert 0 not in seen.blocks and 0 not in maker.scene.fold.free_queue


def test_the_same_content_keeps_its_letter_from_look_up_to_touch() -> None:
    """Also for a view that comes late, and knows free blocks only by their hashes."""
    maker = FrameMaker(Scene(maker_after(before()).scene.fold.copy()))
    seen = everything(maker)
    letters = {block_id: cell[2] for block_id, cell in seen.blocks.items()}
    for run in runs(interleaved()[:11]):
        seen.apply(maker.play(run))
    assert {i: seen.blocks[i][2] for i in (1, 2, 4, 5)} == {i: letters[i] for i in (1, 2, 4, 5)}


def test_a_finished_request_has_one_row_and_an_open_one_has_one_per_group() -> None:
    _, seen, _ = played(interleaved())
    assert sorted(seen.rows) == ["0:0", "1:0", "1:1"]


def test_the_tier_is_known_by_what_is_saved_and_loaded() -> None:
    timeline = Timeline()
    for event in [*before(), *interleaved()]:
        timeline.record(event)
    saved = [(group, content(i)) for group in (0, 1) for i in (0, 1)]
    loaded = [(group, content(i)) for group in (0, 1) for i in (2, 3)]
    assert kept_contents(timeline) == [*saved, *loaded]
    assert kept_contents(timeline, len(before())) == saved
    assert kept_contents(None) == []
    maker, seen, _ = played(interleaved())
    assert seen.tier["total"] == 8 and len(seen.tier["entries"]) == 8
    late = FrameMaker(Scene(maker.scene.fold.copy(), tier=kept_contents(timeline)))
    assert everything(late).tier["total"] == 8


def test_a_load_slides_from_the_tier_and_a_save_into_it() -> None:
    maker = maker_after(before())
    frames = [maker.play(run) for run in runs(interleaved())]
    assert frames[-1]["moves"][0] == ["#5", f"tier:0:{content(2).hex()[:16]}", "pool:5"]
    assert frames[-1]["focus"] == [5, 4, 6, 3]
    assert frames[1]["focus"] == [1, 2, 4, 5]


def test_a_violation_and_a_save_do_not_end_the_forward_phase() -> None:
    violation = ev.ViolationFound("read", "wrong", (1,), (4, 5), 2, None)
    for event in (violation, ev.BlocksSaved(1, ())):
        assert phase_after(event, "forward") == "forward"
    maker = maker_after([*before(), *interleaved()])
    again = ev.ViolationFound("read", "too", (1,), (0, 9), 2, None)
    frame = maker.play(runs([violation, again])[0])
    assert frame["sentence"] == "A rule is broken: wrong (and 1 more)." and frame["focus"] == [4, 5, 9]


def test_groups_have_names() -> None:
    scene = maker_after(before()).scene
    full, window = scene.fold.groups
    assert [group_name((full, window), i) for i in (0, 1)] == ["full group", "window group"]
    names = [group_name((window, full, window), i) for i in range(3)]
    assert names == ["window group 1", "full group", "window group 2"]
    for event in (ev.BlocksSkipped(1, 1, 3),):
        assert "first 3 blocks lie outside the window group's window" in sentence([event], scene)


def test_the_text_picture_shows_groups_nulls_and_what_was_given_twice() -> None:
    text = block_map(fold([*before(), *interleaved()]))
    assert "#0 null" in text and "#4 [~]x2!!" in text and "#5 [~]x2!!" in text and "#1 [p]" in text
    assert "      full group   -> #1 #2 #5 #4 #7\n      window group -> #4 #5 #6 #3 #8\n" in text
    assert text.endswith("!! in the tables of two groups: one overwrites the other")
    text = block_map(fold([*before(), *narrow()]))
    assert "      window group -> - #5\n" in text and "!!" not in text


def test_equal_tokens_of_two_groups_are_two_contents() -> None:
    text = block_map(fold(before()))
    assert "p->(#1)  q->(#2)  r->(#4)  s->(#5)" in text


def test_the_svg_tells_the_same() -> None:
    svg = block_map_svg(fold([*before(), *interleaved()]))
    words = [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("B, twice!") == 2 and words.count("null") == 1
    assert "    full group → #1 #2 #5 #4 #7" in words and "    window group → #4 #5 #6 #3 #8" in words
    words = block_map_svg(fold([*before(), *narrow()]))
    assert "window group → – #5" in words and "twice" not in words


@pytest.mark.parametrize("edition", ["labengine", "vllm"])
@pytest.mark.parametrize("seed", range(3))
def test_random_hybrid_runs_frame_by_frame(edition: str, seed: int) -> None:
    """Windows, loads, saves, preemption: after every message the browser has what a late one is sent."""
    random = Random(f"{edition} {seed}")
    groups = (GroupSpec(4), GroupSpec(4, "sliding_window", 9), GroupSpec(4, "sliding_window", 9))
    with Lab("simulated", num_blocks=30, groups=groups, edition=edition, external=HostStore(), seed=seed) as lab:
        maker, heard = FrameMaker(Scene(lab.fold())), []
        lab.hooks.subscribe(heard.append)
        seen = everything(maker)
        for _ in range(60):
            if random.random() < 0.3:
                shared = list(range(1, random.choice([6, 10, 14, 22])))
                lab.add(token_ids=[*shared, random.randint(90, 99)], max_tokens=random.randint(1, 9))
            lab.step()
            if random.random() < 0.5:
                for run in runs(heard):
                    seen.apply(maker.play(run))
            else:
                maker.follow(heard)
                seen.apply(maker.merged())
            heard.clear()
            assert seen == everything(late_view(maker))
            assert maker.scene.fold.snapshot() == lab.snapshot()
            assert seen.head["score"][0] == lab.snapshot().num_used_blocks
        assert seen.tier["total"] > 6


def late_view(maker: FrameMaker) -> FrameMaker:
    """Another maker at the same state, with the same letters, slots and tier."""
    other = FrameMaker(Scene(maker.scene.fold.copy(), tier=maker.scene.tier))
    other.scene.contents, other.scene._written = maker.scene.contents, dict(maker.scene._written)
    other.scene.peak, other.phase = maker.scene.peak, maker.phase
    return other
