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
from widgets.words.test_sentences import names_in


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
    assert any("A's next tokens are guessed: “37496”, “42183”, “1” and “1536”." in one for one in words)
    judged = ["2 A 4 #4 2", "B 4 #3 #5 4"]
    assert [names_in(one) for one in words if "accepted" in one and "garbage" in one] == judged


def test_an_accepted_token_has_keys_and_values_already() -> None:
    words = told(speculating())
    assert any("A gets “37496”, “42183” and “46870”. The first 2 were guessed" in one for one in words)
    [next_token] = [one for one in words if "B's next token, at position 6, is “36041”" in one]
    assert "no keys and values yet" in next_token


def test_a_request_that_ends_with_an_accepted_draft_has_no_token_without_kv() -> None:
    lab = speculating()
    scene = Scene(lab.timeline.state(lab.timeline.end))
    num_tokens = len(lab.snapshot().requests[0].token_ids)
    last = ev.TokenSampled(0, 7, num_tokens)
    for event in (ev.DraftsJudged(0, 1, 3), last):
        scene.apply(event)
    assert sentence([last], scene).startswith("A gets “7”, as guessed")
    after = ev.TokenSampled(0, 8, num_tokens + 1)
    scene.apply(after)
    assert sentence([after], scene).startswith("A's next token, at position 12, is “8”")


def test_a_state_is_held_copied_and_passed_over() -> None:
    groups = [GroupSpec(4, "full"), GroupSpec(8, "state")]
    lab = Lab("simulated", num_blocks=24, groups=groups, max_num_batched_tokens=12)
    lab.add(token_ids=range(10, 30), max_tokens=12)
    lab.step(4)
    lab.add(token_ids=range(10, 27), max_tokens=6)
    lab.step(1)
    words = told(lab)
    assert any("A's #2 holds its state after 8 tokens" in one and "for r find it" in one for one in words)
    [advanced] = [one for one in words if "A's state after 8 tokens" in one and "16 tokens" in one]
    assert "#5" in advanced
    assert any("B's table of the state group begins with 1 null entry" in one for one in words)


def test_the_waiting_queue_is_told_in_order_of_urgency() -> None:
    lab = Lab("simulated", num_blocks=10, block_size=4, policy="priority", max_num_seqs=1)
    for priority in (5, 0, 3):
        lab.add(token_ids=range(20 + priority, 26 + priority), priority=priority, max_tokens=2)
    lab.step(1)
    words = told(lab)
    assert [names_in(one) for one in words[1:4]] == ["A 6 5", "B A 6 0", "C B A 6 3"]
    assert "ahead of A" in words[2] and "behind B and ahead of A" in words[3]
    [looked_up] = [one for one in words if "looks up" in one]
    assert looked_up.startswith("B is more urgent than A")


def test_the_beams_of_a_search_are_told_from_forks() -> None:
    lab = Lab("simulated", num_blocks=16, block_size=4)
    lab.add(token_ids=range(10, 20), beams=3, max_tokens=4)
    lab.add(token_ids=range(30, 40), n=3, max_tokens=4)
    first, beams, other, forks = told(lab)[1:]
    assert first.startswith("A joins") and "the first of 3 beams" in first
    assert beams.startswith("B and C are the other beams of A's search")
    assert other.startswith("D joins the waiting queue behind A, B and C, with 10 prompt tokens")
    assert forks.startswith("E and F have") and " D" in forks and "fork" in forks


def test_equal_tokens_with_another_image_are_another_content() -> None:
    lab = Lab("simulated", num_blocks=16, block_size=4)
    prompt = [1, 2, 3, *[99] * 6, 4, 5, 6]
    for name in ("cat.png", "dog.png", "cat.png"):
        lab.add(token_ids=prompt, images={3: (name, 6)}, max_tokens=2)
    lab.step()
    written = [words for words in told(lab) if "keys and values of positions" in words]
    names = ["A 0 11 #0 #1 #2", "B 0 11 #3 #4 #5", "C 0 11 #6 #7 #8 p q r #0 #1 #2"]
    assert [names_in(one) for one in written] == names, "only the third is computed twice"


def test_a_view_that_opens_late_knows_images_and_beams() -> None:
    lab = Lab("simulated", num_blocks=16, block_size=4)
    lab.add(token_ids=[1, 2, *[99] * 6], images={2: ("cat.png", 6)}, beams=2, max_tokens=4)
    lab.step()
    state = fold_of(loads(dumps(keyframe(lab.timeline.state(lab.timeline.end)))))
    assert [(request.first_beam, request.images) for request in state.requests.values()] == [
        (0, ((2, 6, "cat.png"),)),
        (0, ((2, 6, "cat.png"),)),
    ]
