"""Captions of forks, beams, drafts, states and priorities, of labs that run."""

from __future__ import annotations

from json import loads

from labengine import Lab
from labengine import events as ev
from labengine.config import GroupSpec
from labengine.core.proposer import FixedDrafts
from labengine.record.files.codec import dumps
from labengine.record.files.keyframe import fold_of, keyframe
from labengine_widgets.words.captions import captions_of
from labengine_widgets.words.scene import Scene
from labengine_widgets.words.sentences import sentence


def told(lab: Lab) -> list[str]:
    """All captions of a lab's recording."""
    return [words for _, words, _ in captions_of(lab.timeline, 0, lab.timeline.end)]


def speculating() -> Lab:
    """A lab whose first request has two of four drafts accepted in step 2, and whose second one has none."""
    plain = Lab("simulated", num_blocks=16, block_size=4)
    plain.add(token_ids=range(10, 17), max_tokens=8)
    plain.run()
    right = plain.snapshot().requests[0].token_ids
    lab = Lab("simulated", num_blocks=16, block_size=4, speculation=FixedDrafts((*right[:10], 1, *right[11:]), 4))
    lab.add(token_ids=range(10, 17), max_tokens=8)
    lab.add(token_ids=range(50, 55), max_tokens=8)
    lab.step(2)
    return lab


def test_a_draft_is_guessed_scheduled_judged_and_what_is_left_is_garbage() -> None:
    words = told(speculating())
    assert "A's next tokens are guessed: “37496”, “42183”, “1” and “1536”. The next step judges them." in words
    judged = [
        "2 of A's 4 drafts are accepted. #4 holds keys and values of 2 rejected drafts: garbage, to be overwritten.",
        "None of B's 4 drafts is accepted. #3 and #5 hold keys and values of 4 rejected drafts: garbage, to be "
        "overwritten.",
    ]
    assert [one for one in words if "accepted" in one] == judged


def test_an_accepted_token_has_keys_and_values_already() -> None:
    words = told(speculating())
    assert (
        "A gets “37496”, “42183” and “46870”. The first 2 were guessed: keys and values are there already; the last "
        "has none yet."
    ) in words
    assert "B's next token, at position 6, is “36041”: it has no keys and values yet." in words


def test_a_request_that_ends_with_an_accepted_draft_has_no_token_without_kv() -> None:
    lab = speculating()
    scene = Scene(lab.timeline.state(lab.timeline.end))
    num_tokens = len(lab.snapshot().requests[0].token_ids)
    last = ev.TokenSampled(0, 7, num_tokens)
    for event in (ev.DraftsJudged(0, 1, 3), last):
        scene.apply(event)
    assert sentence([last], scene) == "A gets “7”, as guessed: keys and values are there already."
    after = ev.TokenSampled(0, 8, num_tokens + 1)
    scene.apply(after)
    assert sentence([after], scene) == "A's next token, at position 12, is “8”: it has no keys and values yet."


def test_a_state_is_held_copied_and_passed_over() -> None:
    groups = [GroupSpec(4, "full"), GroupSpec(8, "state")]
    lab = Lab("simulated", num_blocks=24, groups=groups, max_num_batched_tokens=12)
    lab.add(token_ids=range(10, 30), max_tokens=12)
    lab.step(4)
    lab.add(token_ids=range(10, 27), max_tokens=6)
    lab.step(1)
    words = told(lab)
    assert "A's #2 holds its state after 8 tokens and joins the prefix map: look-ups for r find it." in words
    assert "A's state after 8 tokens goes on to that after 16 tokens, which is written into #5." in words
    assert "B's table of the state group begins with 1 null entry: one state stands for all tokens before it." in words


def test_the_waiting_queue_is_told_in_order_of_urgency() -> None:
    lab = Lab("simulated", num_blocks=10, block_size=4, policy="priority", max_num_seqs=1)
    for priority in (5, 0, 3):
        lab.add(token_ids=range(20 + priority, 26 + priority), priority=priority, max_tokens=2)
    lab.step(1)
    words = told(lab)
    assert words[1:4] == [
        "A joins the waiting queue with 6 prompt tokens and priority 5, and no blocks yet.",
        "B joins the waiting queue ahead of A, with 6 prompt tokens and priority 0, and no blocks yet.",
        "C joins the waiting queue behind B and ahead of A, with 6 prompt tokens and priority 3, and no blocks yet.",
    ]
    [looked_up] = [one for one in words if "looks up" in one]
    assert looked_up.startswith("B is more urgent than A, and is next: it looks up its prompt in the prefix cache")


def test_the_beams_of_a_search_are_told_from_forks() -> None:
    lab = Lab("simulated", num_blocks=16, block_size=4)
    lab.add(token_ids=range(10, 20), beams=3, max_tokens=4)
    lab.add(token_ids=range(30, 40), n=3, max_tokens=4)
    assert told(lab)[1:] == [
        "A joins the waiting queue with 10 prompt tokens, and no blocks yet: the first of 3 beams.",
        "B and C are the other beams of A's search: they wait until the prompt is computed, to fork from A.",
        "D joins the waiting queue behind A, B and C, with 10 prompt tokens, and no blocks yet.",
        "E and F have the tokens of D, and wait until they are computed, to fork from it.",
    ]


def test_equal_tokens_with_another_image_are_another_content() -> None:
    lab = Lab("simulated", num_blocks=16, block_size=4)
    prompt = [1, 2, 3, *[99] * 6, 4, 5, 6]
    for name in ("cat.png", "dog.png", "cat.png"):
        lab.add(token_ids=prompt, images={3: (name, 6)}, max_tokens=2)
    lab.step()
    written = [words for words in told(lab) if "keys and values of positions" in words]
    assert written == [
        "A's keys and values of positions 0 to 11 are written into #0, #1 and #2.",
        "B's keys and values of positions 0 to 11 are written into #3, #4 and #5.",
        "C's keys and values of positions 0 to 11 are written into #6, #7 and #8. p, q and r are in #0, #1 and #2 "
        "already: computed twice.",
    ]


def test_a_view_that_opens_late_knows_images_and_beams() -> None:
    lab = Lab("simulated", num_blocks=16, block_size=4)
    lab.add(token_ids=[1, 2, *[99] * 6], images={2: ("cat.png", 6)}, beams=2, max_tokens=4)
    lab.step()
    state = fold_of(loads(dumps(keyframe(lab.timeline.state(lab.timeline.end)))))
    assert [(request.first_beam, request.images) for request in state.requests.values()] == [
        (0, ((2, 6, "cat.png"),)),
        (0, ((2, 6, "cat.png"),)),
    ]
