"""Why? about forks, beams, drafts and states."""

from __future__ import annotations

from typing import Any

from labengine import Lab
from labengine.config import GroupSpec
from labengine.events import BlocksSkipped, Event, RequestFinished, TokenSampled
from widgets.words.test_kinds_of_state import speculating


def kinds(lab: Lab, **asked: object) -> list[str]:
    """The kinds of the events that an answer links to."""
    assert lab.timeline is not None
    events = list(lab.timeline.events())
    return [
        type(events[link.event_number]).__name__ for link in lab.why(**asked).links if link.event_number is not None
    ]


def test_the_first_wrong_draft_and_those_behind_it_are_named() -> None:
    lab = speculating()
    answer = lab.why(request="A", about="drafts")
    assert answer.question == "Why were 2 of A's 4 drafts rejected?"
    assert "positions 8 to 11 were guessed: 37496, 42183, 1 and 1536. At position 10 the" in answer.answer
    assert "46870 instead of 1, after 2 equal tokens" in answer.answer
    assert kinds(lab, request="A", about="drafts") == [
        *("TokensDrafted", "RequestScheduled", "DraftsJudged", "TokenSampled"),
    ]
    assert (
        "At position 6 the model samples a different token, 36041 instead of"
        in lab.why(request="B", about="drafts").answer
    )


def test_drafts_that_are_not_judged_yet_and_none_at_all() -> None:
    lab = speculating()
    lab.reset()
    lab.add(token_ids=range(10, 17), max_tokens=8)
    lab.step()
    answer = lab.why(request=0, about="drafts")
    assert answer.question == "Why are A's drafts not judged?" and "4 drafts" in answer.answer
    plain = Lab("simulated", num_blocks=8, block_size=4)
    plain.add(token_ids=range(5), max_tokens=2)
    plain.step()
    assert plain.why(request=0, about="drafts").question == "Why does A have no drafts?"


def hybrid() -> Lab:
    """A lab whose request A went past position 8 in one chunk, so that no state after 8 tokens is cached."""
    lab = Lab("simulated", num_blocks=24, groups=[GroupSpec(4, "full"), GroupSpec(8, "state")])
    lab.add(token_ids=range(10, 30), max_tokens=12)
    lab.step(4)
    return lab


def test_a_hit_ends_where_a_chunk_went_past_the_state() -> None:
    lab = hybrid()
    lab.add(token_ids=range(10, 25), max_tokens=6)
    lab.step()
    answer = lab.why(request="B", about="hit")
    assert answer.question == "Why did B hit nothing?"
    assert "The full group has its first 12 tokens, but the state group had no state after 8" in answer.answer
    assert "A computed positions 0 to 15 in one step" in answer.answer
    assert kinds(lab, request="B", about="hit") == ["RequestScheduled", "PrefixHit"]


def test_a_hit_ends_at_the_last_state_before_the_other_tokens() -> None:
    lab = hybrid()
    lab.step(4)  # both groups register what ends at multiples of 8
    lab.add(token_ids=[*range(10, 30), 7, 7, 7, 7], max_tokens=6)
    lab.step()
    answer = lab.why(request="B", about="hit")
    assert answer.question == "Why did B hit 16 of its 24 tokens?"
    assert "The full group has its first 20 tokens" in answer.answer and "multiples of 8 tokens" in answer.answer


def test_a_state_that_was_evicted_is_named() -> None:
    lab = Lab("simulated", num_blocks=10, groups=[GroupSpec(4, "full"), GroupSpec(8, "state")])
    lab.add(token_ids=range(10, 19), max_tokens=1)
    lab.run()
    lab.add(token_ids=range(50, 82), max_tokens=1)
    lab.run()
    lab.add(token_ids=range(10, 19), max_tokens=1)
    lab.step()
    answer = lab.why(request="C", about="hit").answer
    assert "evicted" in answer and "other hashes" not in answer, answer


def test_a_fork_looks_nothing_up() -> None:
    lab = Lab("simulated", num_blocks=16, block_size=4)
    lab.add(token_ids=range(10, 20), n=2, max_tokens=4)
    assert "B looks nothing up: it waits until A" in lab.why(request="B", about="hit").answer
    lab.step()
    answer = lab.why(request="B", about="hit").answer
    assert "forked from A" in answer and "10 tokens that A had computed" in answer
    assert kinds(lab, request="B", about="hit") == ["RequestForked"]


def test_a_block_of_one_request_says_why_no_other_finds_it() -> None:
    lab = hybrid()
    state, tail = lab.snapshot().requests[0].block_tables[1][-1], lab.snapshot().requests[0].block_tables[0][-1]
    assert "each step overwrites it" in lab.why(block=state).answer
    assert "not full, so it has no hash and no look-up finds it" in lab.why(block=tail).answer
    full = lab.snapshot().requests[0].block_tables[0][0]
    assert "no look-up" not in lab.why(block=full).answer


def test_a_beam_that_gives_way_names_the_one_that_goes_on() -> None:
    lab = Lab("simulated", num_blocks=16, block_size=4)
    lab.add(token_ids=range(10, 20), beams=3, max_tokens=8)
    lab.step(2)
    answer = lab.why(request="C", about="beam")
    assert answer.question == "Why was C's beam dropped?"
    assert "A had more than one: C took the tokens of A" in answer.answer
    assert kinds(lab, request="C", about="beam") == ["BeamReplaced", "TokenSampled", "TokenSampled"]
    assert "not dropped" in lab.why(request="A", about="beam").answer


def forked(**settings: Any) -> Lab:
    """A lab in which B has forked from A."""
    lab = Lab("simulated", num_blocks=24, **settings)
    lab.add(token_ids=range(10, 20), n=2, max_tokens=4)
    lab.step()
    return lab


def last_event(lab: Lab, kind: type[Event], **fields: object) -> int:
    assert lab.timeline is not None
    events = enumerate(lab.timeline.events())
    return [n for n, e in events if isinstance(e, kind) and all(getattr(e, k) == v for k, v in fields.items())][-1]


def test_a_fork_takes_its_first_token_because_it_forked() -> None:
    lab = forked(block_size=4)
    sampled = last_event(lab, TokenSampled, request_id=1)
    assert kinds(lab, event=sampled)[-2:] == ["RequestForked", "TokenSampled"]
    assert "B forks from A" in lab.why(event=sampled).answer


def test_null_entries_before_a_state_are_not_put_down_to_a_window() -> None:
    lab = forked(groups=[GroupSpec(4), GroupSpec(4, "state")])
    lab.step()
    answer = lab.why(event=last_event(lab, BlocksSkipped, request_id=1))
    assert "B forks from A" in answer.answer
    assert "indow" not in str(answer)


def test_a_request_that_was_moved_or_aborted_says_who_ended_it() -> None:
    lab, other = forked(block_size=4), Lab("simulated", num_blocks=24, block_size=4)
    lab.hand_over("A", other)
    assert lab.why(event=last_event(lab, RequestFinished)).answer.startswith("It was handed over to another lab.")
    lab.abort("B")
    assert lab.why(event=last_event(lab, RequestFinished)).answer.startswith("It was aborted.")


def test_the_count_of_a_free_block_and_of_the_null_block() -> None:
    lab = Lab("simulated", num_blocks=24, edition="vllm", groups=[GroupSpec(4), GroupSpec(4, "state")])
    lab.add(token_ids=range(10, 20), max_tokens=4)
    lab.step()
    assert lab.why(block=23, about="ref_count").answer == "No block table points to #23: it is free."
    assert "null block" in lab.why(block=0, about="ref_count").answer
