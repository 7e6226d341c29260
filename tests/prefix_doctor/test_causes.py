"""Each verdict on a tiny simulated lab whose cause is known by construction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import labengine
from labengine import events as ev
from labengine.config import GroupSpec
from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.lab import Lab
from labengine.prefix_doctor.examined import diagnosis_of_recordings
from labengine.prefix_doctor.look_ups.examine import examine
from labengine.prefix_doctor.look_ups.look_up import LookUp
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine, kept_events
from labengine.prefix_doctor.mended import Costs
from recorded_engines import diagnosis_without_runs


def lab_of(num_blocks: int = 16, **settings: object) -> Lab:
    return labengine.Lab("simulated", num_blocks=num_blocks, block_size=4, **settings)  # type: ignore[arg-type]


def prompt(length: int, start: int = 100) -> list[int]:
    return list(range(start, start + length))


def newest(lab: Lab) -> LookUp:
    return diagnosis_without_runs(lab).look_ups[-1]


def causes(one: LookUp) -> list[tuple[str, int, int]]:
    return [(miss.cause, miss.start, miss.end) for miss in one.misses]


def test_a_complete_hit_leaves_the_last_token() -> None:
    lab = lab_of()
    lab.generate([prompt(13)], max_tokens=1)
    lab.generate([prompt(13)], max_tokens=1)
    found = newest(lab)
    assert (found.verdict, found.num_hit, causes(found)) == ("hit", 12, [("tail", 12, 13)])
    assert found.sentence.startswith("hit 12 of 13 tokens: every complete block")


def test_a_prompt_of_complete_blocks_computes_its_last_block_for_the_last_token() -> None:
    lab = lab_of()
    lab.generate([prompt(12)], max_tokens=1)
    lab.generate([prompt(12)], max_tokens=1)
    assert causes(newest(lab)) == [("tail", 8, 12)]


def test_a_prompt_of_one_block_can_hit_nothing() -> None:
    lab = lab_of()
    lab.generate([prompt(4)], max_tokens=1)
    lab.generate([prompt(4)], max_tokens=1)
    found = newest(lab)
    assert (found.verdict, found.num_hit) == ("tail", 0)
    assert "no complete block of 4" in found.sentence


def test_the_first_request_and_one_that_begins_otherwise_are_new() -> None:
    lab = lab_of()
    lab.generate([prompt(9)], max_tokens=1)
    assert "no request came before it" in newest(lab).sentence
    lab.generate([prompt(9, 500)], max_tokens=1)
    assert newest(lab).verdict == "new" and "begins with the same token" in newest(lab).sentence


def test_a_prompt_that_diverges_at_a_block_says_where_and_after_what_text() -> None:
    lab = lab_of()
    lab.generate([prompt(16)], max_tokens=1)
    lab.generate([[*prompt(8), 1, 2, 3, 4, 5]], max_tokens=1)
    found = newest(lab)
    assert (found.verdict, found.num_shared, found.shared_with) == ("new", 8, 0)
    assert causes(found) == [("new", 8, 12), ("tail", 12, 13)]
    assert "diverged from A at token 8: after “100 101" in found.sentence
    assert "it has “1 2 3 4”, A has “108 109 110 111”" in found.sentence


def test_a_shared_prefix_shorter_than_a_block_is_no_hit() -> None:
    """What vLLM #54607 asks for: no hit, and not because nothing is shared."""
    lab = lab_of()
    lab.generate([prompt(9)], max_tokens=1)
    lab.generate([[100, 101, 102, 1, 2, 3, 4, 5, 6]], max_tokens=1)
    found = newest(lab)
    assert causes(found) == [("short_of_a_block", 0, 3), ("new", 3, 8), ("tail", 8, 9)]
    assert "shares 3 tokens with A, less than a block of 4" in found.sentence


def test_what_is_shared_of_the_block_behind_a_hit_is_counted() -> None:
    lab = lab_of()
    lab.generate([prompt(9)], max_tokens=1)
    lab.generate([[*prompt(6), 1, 2, 3, 4]], max_tokens=1)
    assert causes(newest(lab)) == [("short_of_a_block", 4, 6), ("new", 6, 8), ("tail", 8, 10)]
    assert "shares 6 tokens with A, 2 of them in a block of 4" in newest(lab).sentence


def test_an_evicted_prefix_names_who_took_its_blocks_and_when() -> None:
    lab = lab_of(8)
    lab.generate([prompt(13)], max_tokens=1)
    lab.generate([prompt(26, 500)], max_tokens=1)
    lab.generate([prompt(13)], max_tokens=1)
    found = newest(lab)
    assert (found.verdict, found.num_hit) == ("evicted", 4)
    assert causes(found) == [("evicted", 4, 12), ("tail", 12, 13)]
    assert "tokens 4 to 11 were evicted 1 step ago by B's prefill" in found.sentence


def test_a_decode_may_have_evicted_it() -> None:
    lab = lab_of(4)
    lab.generate([prompt(8)], max_tokens=1)
    lab.generate([prompt(7, 500)], max_tokens=8)
    lab.generate([prompt(8)], max_tokens=1)
    assert "by B's decode" in newest(lab).sentence


def test_a_reset_cache_is_no_eviction() -> None:
    lab = lab_of()
    lab.generate([prompt(9)], max_tokens=1)
    assert lab.reset_prefix_cache()
    lab.generate([prompt(9)], max_tokens=1)
    assert newest(lab).verdict == "reset" and "the cache was reset" in newest(lab).sentence


def test_equal_prompts_of_one_step_compute_the_same_tokens() -> None:
    lab = lab_of()
    lab.add(token_ids=prompt(9), max_tokens=1)
    lab.add(token_ids=prompt(9), max_tokens=1)
    lab.run()
    found = newest(lab)
    assert causes(found) == [("not_registered_yet", 0, 8), ("tail", 8, 9)]
    assert "A is computing the same 8 tokens" in found.sentence


@pytest.mark.parametrize("keys", [{"cache_salt": "x"}, {"extra_keys": {"adapter": "x"}}])
def test_the_same_tokens_under_another_salt_or_adapter(keys: dict[str, object]) -> None:
    lab = lab_of()
    lab.generate([prompt(13)], max_tokens=1)
    lab.add(token_ids=prompt(13), max_tokens=1, **keys)  # type: ignore[arg-type]
    lab.run()
    found = newest(lab)
    assert causes(found) == [("other_salt", 0, 12), ("tail", 12, 13)]
    assert "A has the same 12 tokens under a different salt" in found.sentence


def test_a_conversation_misses_the_block_whose_last_token_was_never_computed() -> None:
    """A request ends with a token that is sampled and not computed: a block that ends with it is never full."""
    lab = lab_of()
    (answer,) = lab.generate([prompt(6)], max_tokens=2)
    lab.generate([[*prompt(6), *answer.token_ids, 1, 2, 3, 4]], max_tokens=1)
    found = newest(lab)
    assert (found.num_hit, causes(found)[0]) == (4, ("never_registered", 4, 8))
    assert "A ended before its last token was computed" in found.sentence


def test_a_preempted_request_is_looked_up_again() -> None:
    lab = lab_of(6, edition="vllm", max_num_seqs=2)
    lab.add(token_ids=prompt(7), max_tokens=12)
    lab.add(token_ids=prompt(7, 500), max_tokens=12)
    lab.run()
    diagnosis = labengine.doctor(lab)
    again = [one for one in diagnosis.look_ups if not one.is_first]
    assert again and diagnosis.sums.num_look_ups == 2 and diagnosis.sums.num_tokens == 14
    assert diagnosis.report.sums_again.num_look_ups == len(again)
    assert all(one.sentence.startswith("admitted again: ") for one in again)


def test_a_window_that_lost_its_blocks_ends_the_hit_of_all_groups() -> None:
    """The prompt's beginning is cached in the full group, and gone from the window's: no hit may end there."""
    groups = [GroupSpec(4, "full"), GroupSpec(4, "sliding_window", 5)]
    lab = labengine.Lab("simulated", num_blocks=11, groups=groups, max_num_batched_tokens=8)
    lab.generate([prompt(25)], max_tokens=1)
    lab.generate([[*prompt(9), 1, 2, 3]], max_tokens=1)
    found = newest(lab)
    assert found.verdict == "evicted" and "A's prefill (window group)" in found.sentence, found


def test_what_was_before_a_recording_is_unknown() -> None:
    lab = lab_of(record=60)
    lab.generate([prompt(13)], max_tokens=1)
    assert lab.reset_prefix_cache()
    lab.generate([prompt(5, 300)], max_tokens=40)
    lab.generate([prompt(13)], max_tokens=1)
    diagnosis = labengine.doctor(lab)
    found = diagnosis.look_ups[-1]
    assert causes(found) == [("unknown", 0, 12), ("tail", 12, 13)]
    assert "not recorded" in found.sentence
    assert "events were not kept" in diagnosis.report.notes[0]


def test_what_was_before_a_recording_explains_nothing_once_the_pool_has_turned_over() -> None:
    """Before that a miss may be of what was evicted earlier, or is cached for nobody knows whom; then it is new."""
    lab = lab_of(9)
    lab.generate([prompt(9, 500)], max_tokens=1)
    begin = lab.timeline.end
    for start in (100, 200, 300, 400, 600):
        lab.generate([prompt(9, start)], max_tokens=1)
    recording = RecordedEngine("a late one", lab.timeline.state(begin), lab.timeline.events(begin))
    verdicts = [causes(one)[0][0] for one in examine(recording).look_ups]
    assert verdicts == ["unknown"] * 4 + ["new"]
    assert causes(newest(lab))[0][0] == "new"


def test_what_is_cached_when_a_recording_begins_is_known() -> None:
    lab = lab_of(record=60)
    lab.generate([prompt(13)], max_tokens=1)
    lab.generate([prompt(5, 300)], max_tokens=40)
    lab.generate([prompt(13)], max_tokens=1)
    assert newest(lab).num_hit == 12 and newest(lab).verdict == "hit"


def test_tokens_that_a_recording_leaves_out_leave_the_block_of_the_divergence() -> None:
    """As with LABENGINE_TAP_TOKENS=0: hashes tell equal blocks, and no text is known."""
    lab = lab_of()
    lab.generate([prompt(16)], max_tokens=1)
    lab.generate([[*prompt(8), *prompt(6, 500)]], max_tokens=1)
    first, events, _ = kept_events(lab.timeline)
    hidden = [_without_tokens(event) for event in events]
    found = diagnosis_of_recordings([RecordedEngine("hidden", first, hidden)], Costs()).look_ups[-1]
    assert causes(found) == [("new", 8, 12), ("tail", 12, 14)]
    assert "diverged from A in block 2" in found.sentence


def _without_tokens(event: ev.Event) -> ev.Event:
    if isinstance(event, ev.RequestAdded):
        return replace(event, token_ids=(ev.UNKNOWN_TOKEN,) * len(event.token_ids))
    return replace(event, token_id=ev.UNKNOWN_TOKEN) if isinstance(event, ev.TokenSampled) else event


class Shy(LABENGINE.kv_cache_manager):  # type: ignore[name-defined,misc]
    """Takes no hit."""

    def find_prefix(self, request: Request) -> Hit:
        return Hit(0, tuple(() for _ in self.groups))


SHY = Parts(name="shy", kv_cache_manager=Shy)


def test_an_engine_that_does_not_take_what_is_cached_is_named() -> None:
    lab = lab_of(parts=SHY)
    lab.generate([prompt(9)], max_tokens=1)
    lab.generate([prompt(9)], max_tokens=1)
    assert causes(newest(lab)) == [("passed_over", 0, 8), ("tail", 8, 9)]


def test_a_window_needs_the_blocks_that_the_next_token_reads_and_no_more() -> None:
    """Of the window group blocks 0 to 2 are gone: hits that end after 16 tokens or more read none of them."""
    groups = [GroupSpec(4, "full"), GroupSpec(4, "sliding_window", 5)]
    lab = labengine.Lab("simulated", num_blocks=11, groups=groups, max_num_batched_tokens=8, parts=SHY)
    lab.generate([prompt(25)], max_tokens=1)
    lab.generate([prompt(25)], max_tokens=1)
    assert causes(newest(lab)) == [("evicted", 0, 12), ("passed_over", 12, 24), ("tail", 24, 25)]


def test_the_external_tier_is_no_miss(tmp_path: Path) -> None:
    lab = lab_of(external="host")
    lab.fill_external(token_ids=prompt(13))
    lab.generate([prompt(13)], max_tokens=1)
    found = newest(lab)
    assert (found.num_hit, found.num_external, causes(found)) == (0, 12, [("tail", 12, 13)])
    assert "12 more in the external tier" in found.sentence


def test_one_requests_look_ups_are_found_by_its_name() -> None:
    lab = lab_of()
    lab.generate([prompt(9)], max_tokens=1)
    diagnosis = labengine.doctor(lab)
    assert diagnosis.of("A") == diagnosis.of(0) == diagnosis.look_ups
    with pytest.raises(labengine.ConfigError, match="'B' was not admitted"):
        diagnosis.of("B")


def test_what_is_no_recording_is_refused() -> None:
    with pytest.raises(labengine.ConfigError, match="omit record=False"):
        labengine.doctor(lab_of(record=False))
    with pytest.raises(labengine.ConfigError, match="attach first"):
        labengine.doctor("unix:/tmp/nothing")
    with pytest.raises(labengine.ConfigError, match="must be a path"):
        labengine.doctor(3)  # type: ignore[arg-type]


def test_a_saved_lab_gives_the_same_look_ups(tmp_path: Path) -> None:
    lab = lab_of(8)
    lab.generate([prompt(13)], max_tokens=1)
    lab.generate([prompt(26, 500)], max_tokens=1)
    lab.add(token_ids=prompt(13), cache_salt="x", max_tokens=1)
    lab.run()
    lab.generate([prompt(13)], max_tokens=1)
    lab.save(tmp_path / "run.lab")
    assert labengine.doctor(tmp_path / "run.lab").look_ups == labengine.doctor(lab).look_ups
    assert labengine.doctor(labengine.open(tmp_path / "run.lab")).look_ups == labengine.doctor(lab).look_ups


def test_text_of_a_recording_is_escaped_in_html() -> None:
    lab = lab_of()
    lab.generate([prompt(9)], max_tokens=1)
    lab.generate([[*prompt(5), 1, 2, 3, 4]], max_tokens=1)
    first, events, _ = kept_events(lab.timeline)
    names = {0: "<script>0</script>", 1: "b"}
    found = diagnosis_of_recordings([RecordedEngine("<b>title", first, events, lambda _: "<i>", names)], Costs())
    html = found._repr_html_()
    assert "<script>" not in html and "<b>title" not in html and "<i>" not in html
    assert "&lt;script&gt;" in html and "&lt;i&gt;" in html
