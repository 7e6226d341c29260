"""Hash map, free queue and external tier as a reader sees them."""

from __future__ import annotations

import pytest

from core.test_own_decisions import NewestFirst
from labengine import Lab, Parts
from labengine import events as ev
from labengine.core.editions import LABENGINE
from labengine.session.reasons import seams_of
from widgets import story_44409
from widgets.browser.views.mounted_view import MountedView, boxes_of, places_of, show_view, texts_of
from widgets.browser.views.view_recordings import branching, crowd, hybrid, moment_after, preempting
from widgets.story_219 import begin, block_hash, merging_step, overwriting_step

pytestmark = pytest.mark.browser


def twice() -> list[ev.Event]:
    """#219's step under a policy that maps a second block beside the first."""
    events = [*begin(), *overwriting_step()]
    second = [i for i, event in enumerate(events) if isinstance(event, ev.BlockCached)][3:]
    for i in second:
        event = events[i]
        assert isinstance(event, ev.BlockCached)
        mapped = (event.index, event.block_id)
        events[i] = ev.BlockCached(event.block_id, 1, 0, event.index, event.block_hash, mapped)
    return events


def test_a_chain_grows_bead_by_bead_and_loses_its_first_blocks() -> None:
    events = [*begin(), *overwriting_step()]

    def check(mounted: MountedView) -> None:
        mounted.at(moment_after(events, ev.BlockCached, 2))
        assert mounted.texts(".le-map-bead") == ["p#0", "q#1", ""] and mounted.count(".le-map-row") == 1
        widths = [width for _, _, width, _ in mounted.boxes(".le-map-bead")]
        assert len(set(widths)) == 1 and widths[0] < 100, "no room is kept for what will be lost"
        mounted.at(moment_after(events, ev.BlockCached, 4))
        assert mounted.texts(".le-map-bead") == ["p#4#0", "q#1", "r#2"]
        assert mounted.texts(".le-map-lost-block") == ["#0"] and "1 lost" in mounted.text(".le-map-summary")
        wide, *others = [width for _, _, width, _ in mounted.boxes(".le-map-bead")]
        assert wide > widths[0] and others == widths[1:]
        mounted.at(mounted.end)
        assert mounted.text(".le-map-summary") == "3 hashes · 3 lost"
        label = str(mounted.page.locator(".le-map-bead").first.get_attribute("aria-label"))
        assert label == "content p, block 0 of its chain; served with #4; lost: #0"
        for theme in ("light", "dark"):
            mounted.picture("219-lost", theme)

    show_view(check, "map", events)


def test_of_a_long_chain_that_is_still_to_come_no_hash_is_counted() -> None:
    events = crowd(1, 256, 1, 2400)
    more = ".le-map-row > .le-quiet"

    def check(mounted: MountedView) -> None:
        mounted.at(moment_after(events, ev.BlockAllocated, 5))
        assert mounted.text(".le-map-summary") == "no hashes"
        assert not mounted.page.locator(more).first.is_visible()
        mounted.at(mounted.end)
        assert mounted.page.locator(more).first.is_visible() and "more" in mounted.text(more)

    show_view(check, "map", events, width=300)


def test_of_duplicates_the_one_served_first_is_named() -> None:
    def check(mounted: MountedView) -> None:
        assert mounted.texts(".le-map-bead") == ["p▸#0#4", "q▸#1#5", "r▸#2#6"]
        assert mounted.count(".le-map-bead.le-map-is-twice") == 3 and mounted.count(".le-map-lost-block") == 0
        mounted.picture("twice")

    show_view(check, "map", twice())


def test_a_second_ending_branches_off() -> None:
    events = branching()

    def check(mounted: MountedView) -> None:
        assert mounted.texts(".le-map-bead") == ["p#1", "q#2", "r#3", "s#4", "t#5", "u#6"]
        assert mounted.count(".le-map-row") == 2 and mounted.texts(".le-map-branch") == ["└"]
        assert mounted.count(".le-map-bead.le-map-is-kept") == 6, "all are free, and still a hit"
        mounted.picture("branching")

    show_view(check, "map", events)


def test_a_branch_below_another_prompts_row_names_the_hash_that_it_follows() -> None:
    events = branching(range(400, 409))

    def check(mounted: MountedView) -> None:
        assert mounted.count(".le-map-row") == 3 and mounted.texts(".le-map-branch") == ["after q"]
        ((branch, *_),), above = mounted.boxes(".le-map-branch"), mounted.boxes(".le-map-beads")[1]
        assert branch == above[0], "it is not indented as if it belonged to the row above"
        for theme in ("light", "dark"):
            mounted.picture("branch-elsewhere", theme)

    show_view(check, "map", events)


def test_evicted_hashes_stay_until_the_step_ends_and_nothing_moves() -> None:
    events = preempting()

    def check(mounted: MountedView) -> None:
        evicted = [i for i, event in enumerate(events) if isinstance(event, ev.BlockEvicted)]
        steps = [i for i, event in enumerate(events) if isinstance(event, ev.StepStarted)]
        seen = 0
        for start, end in zip(steps, [*steps[1:], mounted.end], strict=True):
            if not any(start < i < end for i in evicted):
                continue
            mounted.at(start + 1)
            places = mounted.places(".le-map-bead[data-hash]")
            asked = places_of(".le-map-bead[data-hash]"), texts_of(".le-map-bead")
            for moment, (now, texts) in mounted.walk(range(start + 1, end + 1), *asked):
                assert places.keys() <= now.keys(), f"who is evicted stays in sight: {moment}"
                assert {key: now[key] for key in places} == places
                seen += "✕ #" in "".join(texts)
        assert seen > 0

    show_view(check, "map", events)


def test_the_map_says_the_same_however_one_came_there() -> None:
    events = hybrid()

    def check(mounted: MountedView) -> None:
        moments, asked = range(0, mounted.end + 1, 3), (texts_of(".le-map-bead"), texts_of(".le-map-summary"))
        forth = dict(mounted.walk(moments, *asked))
        assert dict(mounted.walk(reversed(moments), *asked)) == forth

    show_view(check, "map", events)


def test_the_queue_keeps_seats_and_says_why() -> None:
    events = [*begin(), *merging_step()]

    def check(mounted: MountedView) -> None:
        mounted.at(3)
        assert mounted.texts(".le-queue-tag")[:3] == ["next", "2", "3"]
        assert set(mounted.texts(".le-queue-why")) == {"never used"}
        mounted.at(4)
        seats, tenants = mounted.boxes(".le-queue-seat"), mounted.places(".le-queue-seat")
        assert len(seats) == 12
        moments = [*range(4, mounted.end), *range(mounted.end - 1, 3, -1)]
        asked = boxes_of(".le-queue-seat"), places_of(".le-queue-seat")
        for moment, (boxes, places) in mounted.walk(moments, *asked):
            assert boxes == seats
            if moment < moment_after(events, ev.BlockMerged):
                assert places == tenants, "nobody moves up when others are taken"
        mounted.at(moment_after(events, ev.BlockAllocated, 8))
        assert mounted.texts(".le-queue-seat:has(s)")[:2] == ["#0allocated to A", "#1allocated to A"]
        assert mounted.texts(".le-queue-is-next") == ["next#8never used"]
        mounted.at(mounted.end)
        assert mounted.texts(".le-queue-is-next") == ["next#6B's copy, merged"]
        assert mounted.count(".le-queue-seat") == 7 and mounted.count(".le-queue-seat s") == 0, "at rest"
        assert mounted.text(".le-queue-summary") == "7 free · next #6: holds nothing"
        for theme in ("light", "dark"):
            mounted.picture("219-merged", theme)

    show_view(check, "queue", events)


LEARN = """(code) => {
  window.mounted.side.recording.header.code = code;
  window.mounted.stage.repaint();
}"""


def test_where_a_queue_of_the_users_takes_blocks_the_head_is_not_called_the_next() -> None:
    seams = seams_of(Parts(free_queue=NewestFirst).overriding(LABENGINE))

    def check(mounted: MountedView) -> None:
        mounted.at(mounted.end)
        assert mounted.texts(".le-queue-is-next") == ["next#6B's copy, merged"]
        for is_custom in (False, True):  # also a subclass of labengine's own
            seams["BlockAllocated"] |= {"is_custom": is_custom}
            mounted.page.evaluate(LEARN, seams)
            assert mounted.texts(".le-queue-is-next") == ["head#6B's copy, merged"]
        assert (
            mounted.text(".le-queue-summary")
            == "7 free · head #6: holds nothing · NewestFirst.take decides which is taken"
        )
        for theme in ("light", "dark"):
            mounted.picture("newest-first", theme, width=360)

    show_view(check, "queue", [*begin(), *merging_step()])


RANKS = """() => {
  const queue = [...window.mounted.side.scene.queue.first()], seats = document.querySelectorAll(".le-queue-seat");
  const number = (text) => Number(text.replace("head", "1"));
  const more = document.querySelector(".le-queue-more");
  const beads = [...seats].filter((one) => one.querySelector(".le-bead"));
  return [
    beads.map((one) => [queue.indexOf(Number(one.dataset.block)) + 1, number(one.tag.textContent)]),
    beads.length + (more ? parseInt(more.textContent.slice(2)) : 0) - queue.length,
    [...seats].filter((one) => one.querySelector("s")).map((one) => one.tag.textContent).join(""),
  ];
}"""


@pytest.mark.parametrize("num_blocks", [12, 120])
def test_places_are_right_where_blocks_are_taken_from_the_tail(num_blocks: int) -> None:
    with Lab("simulated", num_blocks=num_blocks, block_size=4, parts=Parts(free_queue=NewestFirst)) as lab:
        for length in (9, 6):
            lab.add(token_ids=range(length), max_tokens=5)
            lab.run()
        assert lab.timeline is not None
        events = lab.timeline.events()

    def check(mounted: MountedView) -> None:
        mounted.at(2)
        mounted.page.evaluate(LEARN, seams_of(lab.parts))
        for moment, (ranks,) in mounted.walk(range(2, mounted.end + 1), RANKS):
            places, num_missing, of_taken = ranks
            assert all(place == told for place, told in places) and (num_missing, of_taken) == (0, ""), (moment, ranks)

    show_view(check, "queue", events)


def test_the_queue_agrees_with_the_engine_at_every_moment() -> None:
    events = preempting()
    seats = (
        "() => [...document.querySelectorAll('.le-queue-seat:has(.le-bead)')].map((one) => Number(one.dataset.block))"
    )
    queue = "() => [...window.mounted.side.scene.queue.first()]"

    def check(mounted: MountedView) -> None:
        moments = [*range(1, mounted.end + 1), *range(mounted.end, 0, -5)]
        why = set()
        for moment, (seen, expected, texts) in mounted.walk(moments, seats, queue, texts_of(".le-queue-why")):
            assert seen == expected, moment
            why |= set(texts)
        assert {"never used", "C was preempted", "A finished", "allocated to A", "found by B"} <= why, why

    show_view(check, "queue", events)


@pytest.mark.parametrize("name", ["queue", "map"])
def test_a_large_pool_is_shown_in_part_and_the_other_blocks_are_counted(name: str) -> None:
    def check(mounted: MountedView) -> None:
        assert mounted.count("#root *") < 4000
        if name == "queue":
            assert "more …" in mounted.text(".le-queue-more") and mounted.texts(".le-queue-tag")[-1].isdigit()
        else:
            assert mounted.count(".le-map-row") == 64 and "more older chains" in mounted.text(".le-map-summary")
        for width in (300, 1400):
            mounted.dress("light", width)
            assert mounted.overflow() <= 0
            mounted.picture(f"crowd-{width}")

    show_view(check, name, crowd(70, 65536, 2, 900))


def test_the_tier_says_what_it_holds_and_what_moved() -> None:
    events = [*story_44409.before(), *story_44409.interleaved()]

    def check(mounted: MountedView) -> None:
        assert mounted.text(".le-tier-summary").startswith(
            "holds 8 blocks · this step: ↓ 4 loaded, ↑ 0 saved · B found 8"
        )
        assert mounted.texts(".le-tier-entry") == ["p●", "q●", "r○", "s○", "t↓", "u↓", "v↓", "w↓"]
        loaded, saved = mounted.texts(".le-tier-line")
        assert loaded.startswith("↓ loaded forBt → #5 full") and saved.startswith("↑ saved fromAp ← #1 full")
        for theme in ("light", "dark"):
            mounted.picture("44409", theme)
        mounted.at(16)
        assert mounted.text(".le-tier-summary") == "Nothing has been saved to an external tier."

    show_view(check, "tier", events)


def test_elements_name_the_things_they_show() -> None:
    def check(mounted: MountedView) -> None:
        key = f"0:{block_hash(1).hex()}"
        mounted.page.evaluate("(id) => window.mounted.view.mark({ kind: 'hash', id })", key)
        assert mounted.texts(".le-selected") == ["q#1"]
        mounted.page.evaluate("() => window.mounted.view.mark({ kind: 'block', id: 2 })")
        assert mounted.texts(".le-selected") == ["#2"]

    show_view(check, "map", [*begin(), *merging_step()])
