"""Why? about the prefix tree: each change names the values that decided it, and each node what becomes of it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from driving import ALL_EDITIONS, TREE_EDITIONS
from labengine import Lab
from labengine import events as ev
from labengine.record.fold import Fold
from labengine.record.timeline import Timeline
from labengine.session.reasons import seams_of
from labengine_widgets.why import why
from labengine_widgets.why.answer import WhyError
from recordings import timeline_of
from widgets.browser.views.view_recordings import tree


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    return timeline_of(tree())


def changes(timeline: Timeline) -> Iterator[tuple[int, ev.Event, Fold]]:
    """Each event about the tree, with its number and the state before it."""
    fold = Fold()
    for number, event in enumerate(timeline.events()):
        if type(event).__name__.startswith("Node"):
            yield number, event, fold
        fold.apply(event)


def test_an_evicted_leaf_is_compared_with_the_others(timeline: Timeline) -> None:
    num_evicted = 0
    for number, event, fold in changes(timeline):
        if not isinstance(event, ev.NodeEvicted):
            continue
        states = fold.tree.states()
        leaves = [node for node in states if all(other.parent_id != node.node_id for other in states)]
        num_locked, free = sum(node.num_locks > 0 for node in leaves), [node for node in leaves if not node.num_locks]
        answer = why(timeline, {"event": number}).answer
        assert free[0].node_id == event.node_id
        assert f"The tree has {len(leaves)} leaves, {num_locked or 'none'} of them with locks." in answer
        assert ("used longest ago" if len(free) > 1 else "the only one") in answer
        taken = next(n for n, e in enumerate(timeline.events()) if n > number and isinstance(e, ev.BlockEvicted))
        assert number in [link.event_number for link in why(timeline, {"event": taken}).links]
        num_evicted += 1
    assert num_evicted > 1


def test_a_split_names_the_request_whose_text_parts_there(timeline: Timeline) -> None:
    found = []
    for number, event, fold in changes(timeline):
        if isinstance(event, ev.NodeSplit):
            blocks = len(fold.tree.nodes[event.node_id].block_ids)
            answer = why(timeline, {"event": number}).answer
            assert f"equals {event.num_blocks} of the node's {blocks} block" in answer
            found.append(answer.partition("The text of ")[2][0])
    assert found == ["B", "C"], "B's insertion, then C's look-up"


def test_locks_and_touches_count_what_they_reach(timeline: Timeline) -> None:
    for number, event, fold in changes(timeline):
        answer = why(timeline, {"event": number}).answer
        if isinstance(event, ev.NodeLocked):
            num_blocks = sum(len(fold.tree.nodes[node_id].block_ids) for node_id in fold.tree.path(event.node_id))
            assert f"reads the {num_blocks} block" in answer
        if isinstance(event, ev.NodesTouched):
            ages = [state.node_id for state in fold.tree.states()]
            assert f" {ages.index(event.node_ids[-1]) + 1} of {len(ages)}." in answer


def test_a_node_says_whether_it_stays(timeline: Timeline) -> None:
    state = timeline.state()
    gone = [event.node_id for _, event, _ in changes(timeline) if isinstance(event, ev.NodeEvicted)]
    assert why(timeline, {"node": gone[0]}).question == f"Why was node {gone[0]} evicted?"
    for node_id in state.tree.nodes:
        is_next = state.tree.next_leaf() == node_id
        assert ("The next eviction takes it" in why(timeline, {"node": node_id}).answer) == is_next
    with pytest.raises(WhyError, match="no node 99 in the prefix tree"):
        why(timeline, {"node": 99})


def test_the_trees_reference_is_told(timeline: Timeline) -> None:
    state = timeline.state()
    for block_id, count in enumerate(state.ref_counts):
        reply = why(timeline, {"block": block_id, "about": "ref_count"})
        if count:
            assert sum(link.change for link in reply.links) == count
            assert ("The prefix tree holds 1 reference" in reply.answer) == (block_id in state.pins)


def test_a_leaf_that_loses_its_end_says_so() -> None:
    lab = Lab("simulated", edition="labengine-radix", num_blocks=12, block_size=1)
    for prompt in (range(1, 9), [9] * 7):
        lab.add(token_ids=prompt, max_tokens=1)
        lab.run()
    timeline = lab.timeline
    assert timeline is not None
    (number, event), *_ = [(n, e) for n, e in enumerate(timeline.events()) if isinstance(e, ev.NodeEvicted)]
    found = why(timeline, {"event": number})
    assert "loses #5, #6 and #7 (blocks are needed) and keeps 5 blocks" in found.question
    assert "Only the last 3 blocks of the node had to go." in found.answer
    assert number in [link.event_number for link in why(timeline, {"node": event.node_id}).links]


LOCKING = ("add_hit", "add_shared", "register", "forget", "free")


@pytest.mark.parametrize("edition", [name for name in TREE_EDITIONS if name in ALL_EDITIONS])
def test_a_lock_is_decided_by_the_method_that_moved_it(edition: str) -> None:
    """The method is the innermost of these on the stack when the event is emitted."""
    lab, moved, met = Lab("simulated", edition=edition, num_blocks=24, block_size=1), list[str](), Counter[str]()

    def note(event: ev.Event) -> None:
        frame = sys._getframe()
        while frame.f_code.co_name not in LOCKING:
            assert frame.f_back is not None
            frame = frame.f_back
        moved.append(frame.f_code.co_name)

    lab.hooks.subscribe(note, ev.NodeLocked, ev.NodeUnlocked)
    rng = Random(0)
    for _ in range(5):
        prompt = [*range(rng.randint(2, 6)), rng.randint(7, 9)]
        if edition == "labengine-radix":
            lab.add(token_ids=prompt, max_tokens=5, n=2)
        else:
            lab.add(token_ids=prompt, max_tokens=5)
        lab.step()
        broken_off = lab.phases()
        for _ in zip(range(2), broken_off, strict=False):  # until the forward pass, which overwrites blocks
            pass
        broken_off.close()
    lab.run()
    timeline = lab.timeline
    assert timeline is not None
    seams = seams_of(lab.parts)
    numbers = [n for n, event in enumerate(timeline.events()) if isinstance(event, ev.NodeLocked | ev.NodeUnlocked)]
    for number, method in zip(numbers, moved, strict=True):
        reply = why(timeline, {"event": number}, seams=seams)
        seam = f"{'PrefixTree' if method == 'forget' else 'RadixGroup'}.{method}"
        assert reply.links[-1].seam == seam and f"{seam} decided it: " in reply.answer, f"event {number}"
        met[method] += 1
    wanted = {"add_hit", "register", "free"} | ({"add_shared"} if edition == "labengine-radix" else set())
    assert wanted <= {*met}
