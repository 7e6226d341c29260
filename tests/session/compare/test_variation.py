"""A workload repeated with other figures: of a lab, of two, of a model with weights; and refusals."""

from __future__ import annotations

from typing import Any

import pytest

import labengine
from labengine.config import ConfigError, GroupSpec
from labengine.engine.recorded_model import RecordedRequest
from labengine.engine.request_options import RequestOptions
from labengine.events import RequestAdded
from labengine.lab import Lab
from labengine.session.compare.comparing import compare
from labengine.session.compare.variation import Variation, vary
from labengine.session.history.inputs import AbortInput, AddInput, pack
from labengine.session.history.workload import Workload

QUESTION = "Why is the sky blue in the day and red in the evening?"


def lab(**settings: Any) -> Lab:
    made = Lab("simulated", **{"num_blocks": 12, "block_size": 4, **settings})
    for _ in range(2):
        made.add(QUESTION, max_tokens=6)
    return made


def events_of(of: Lab) -> list[Any]:
    assert of.timeline is not None
    return of.timeline.events()


def outcome(variation: Variation, **changes: int) -> dict[str, int]:
    variation.change(changes)
    found: dict[str, int] = variation.to_dict()["outcome"][0]["figures"]
    return found


class TestRuns:
    def test_as_recorded_it_gives_the_same_events(self) -> None:
        with lab() as recorded:
            recorded.step(2)
            recorded.add("one more", max_tokens=3)
            recorded.abort("A")
            recorded.step(2)
            with vary(recorded).run() as again:
                assert events_of(again) == events_of(recorded)
                assert again.snapshot() == recorded.snapshot()

    @pytest.mark.parametrize("several", [{"n": 3}, {"beams": 3}])
    def test_answers_and_beams_are_one_copy(self, several: dict[str, int]) -> None:
        with lab(num_blocks=60) as recorded:
            for prompt in ("short", QUESTION, QUESTION):
                recorded.add(prompt, max_tokens=6, **several)
            recorded.branch(0, seed=7)
            recorded.run()
            variation = vary(recorded)
            assert [(one.label, one.recorded) for one in variation.figures][2] == ("copies of A", 2)
            with variation.run() as again:
                assert events_of(again) == events_of(recorded)
            with variation.run(copies=1) as fewer, variation.run(copies=3) as more:
                sizes = [len(one.snapshot().requests) for one in (fewer, recorded, more)]
                assert sizes == [11, 12, 13]
                leaders = [event.from_request_id for event in events_of(more) if isinstance(event, RequestAdded)]
                assert leaders[:12] == [None, None, None, None, 3, 3, None, 6, 6, None, 9, 9]
        with lab(num_blocks=60) as recorded:
            for _ in range(3):
                recorded.add("another", max_tokens=6, **several)
            recorded.run()
            variation = vary(recorded)
            assert [(one.label, one.recorded) for one in variation.figures][2] == ("copies of C", 3)
            with variation.run() as again, variation.run(copies=4) as more:
                assert events_of(again) == events_of(recorded)
                leaders = [event.from_request_id for event in events_of(more) if isinstance(event, RequestAdded)]
                assert leaders == [None, None, None, 2, 2, None, 5, 5, None, 8, 8, None, 11, 11]

    def test_another_block_size_leaves_states_as_they_are(self) -> None:
        with lab(groups=[GroupSpec(4), GroupSpec(8, "state")], num_blocks=40) as recorded:
            recorded.run()
            with vary(recorded).run(block_size=2) as smaller:
                assert [group.block_size for group in smaller.config.groups] == [2, 8]

    def test_a_lab_that_was_done_is_run_to_its_end(self) -> None:
        with lab() as recorded:
            recorded.run()
            with vary(recorded).run(num_blocks=5) as small:
                assert small.session.stepper.engine.scheduler.is_idle
                assert small.snapshot().step > recorded.snapshot().step, "one after the other takes more steps"

    def test_a_lab_that_was_not_done_takes_as_many_steps(self) -> None:
        with lab() as recorded:
            recorded.step()
            with vary(recorded).run(copies=5, num_blocks=30) as five:
                assert (five.snapshot().step, len(five.snapshot().requests)) == (1, 5)

    def test_a_later_request_comes_before_its_step_or_where_no_work_is_left(self) -> None:
        with lab() as recorded:
            recorded.run()
            recorded.add(QUESTION, max_tokens=1)
            recorded.run()
            with vary(recorded).run(block_size=2, num_blocks=30) as again:
                assert [len(one.token_ids) for one in again.snapshot().requests.values()] == [19, 19, 14]

    def test_groups_keep_their_kinds_and_change_their_size(self) -> None:
        groups = [GroupSpec(4), GroupSpec(4, "sliding_window", 8)]
        with lab(groups=groups, num_blocks=24) as recorded, vary(recorded).run(block_size=2) as again:
            assert again.config.groups == (GroupSpec(2), GroupSpec(2, "sliding_window", 8))

    def test_the_lab_stays_as_it_is_and_its_later_inputs_do_not_count(self) -> None:
        with lab() as recorded:
            variation = vary(recorded)
            recorded.step()
            assert outcome(variation)["steps"] == 0
            assert recorded.snapshot().step == 1

    def test_a_part_that_raises_or_breaks_a_rule_is_in_the_outcome(self) -> None:
        class Broken(labengine.BlockPool):
            def touch(self, block_id: int, *rest: Any) -> None:
                raise RuntimeError("touched")

        parts = labengine.Parts(block_pool=Broken)
        with Lab("simulated", num_blocks=20, block_size=4, parts=parts) as recorded:
            recorded.add(QUESTION, max_tokens=1)
            recorded.run()
            recorded.add(QUESTION, max_tokens=1)
            with pytest.raises(RuntimeError, match="touched"):
                recorded.run()
            variation = vary(recorded)
            variation.change({})
            assert "RuntimeError: touched" in variation.to_dict()["outcome"][0]["wrong"]
            variation.change({"block_size": 14})
            assert variation.to_dict()["outcome"][0]["wrong"] == "", "with blocks of 14 nothing is found"


class TestFigures:
    def test_they_follow(self) -> None:
        with lab() as recorded:
            recorded.step()
            variation = vary(recorded)
            assert outcome(variation) == {
                "peak": 8,
                "used": 5,
                "lost": 0,
                "computed": 26,
                "found": 0,
                "preemptions": 0,
                "steps": 1,
            }
            assert outcome(variation, block_size=8)["peak"] == 4
            assert outcome(variation, copies=1)["peak"] == 2, "the block size stays as it was asked for last"
            assert variation.values == {"num_blocks": 12, "block_size": 8, "copies": 1}
            assert "block_size=8" in repr(variation)

    def test_an_impossible_one_says_why_and_changes_nothing(self) -> None:
        with lab() as recorded:
            variation = vary(recorded)
            variation.change({"block_size": 8})
            before = variation.to_dict()
            for wrong, why in (
                ({"num_blocks": 2}, "needs 3 blocks"),
                ({"copies": 0}, "copies must be at least 1"),
                ({"block_size": 1.5}, "block_size must be an integer"),
            ):
                with pytest.raises(ConfigError, match=why):
                    variation.change(wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="did you mean 'copies'"):
                variation.change({"copis": 1})
            assert variation.to_dict() == before

    def test_both_sides_of_a_comparison(self) -> None:
        with compare("nano-vllm", "nano-vllm+243", num_blocks=12, block_size=4) as both:
            for _ in range(2):
                both.add(QUESTION, max_tokens=6)
            both.step()
            variation = vary(both)
            variation.change({"copies": 3})
            sides = variation.to_dict()["outcome"]
            assert [(side["name"], side["figures"]["used"], side["figures"]["lost"]) for side in sides] == [
                ("nano-vllm", 12, 6),
                ("nano-vllm+243", 6, 0),
            ]
            with variation.run() as again:
                assert again.first_difference() is not None
                assert again.names == both.names


class TestRefusals:
    def test_what_cannot_be_run_again(self, tmp_path: Any) -> None:
        with lab() as recorded:
            recorded.step()
            recorded.save(tmp_path / "run.lab")
        with pytest.raises(ConfigError, match="a recording has none"):
            vary(labengine.open(tmp_path / "run.lab"))
        with Lab("simulated") as empty, pytest.raises(ConfigError, match="add a request"):
            vary(empty)
        with lab(record=False) as unrecorded, pytest.raises(ConfigError, match="record=False"):
            vary(unrecorded)
        with labengine.bug("vllm-44409").compare() as by_hand, pytest.raises(ConfigError, match="external='host'"):
            vary(by_hand)


class TestRecordedTokens:
    def test_a_model_with_weights_is_not_asked_again(self, smollm2: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        for _ in range(2):
            smollm2.add("The sea is deep and", max_tokens=8)
        smollm2.run()
        said = [smollm2.output(one).token_ids for one in (0, 1)]
        variation = vary(smollm2)
        monkeypatch.setattr(type(smollm2.session.model.runner), "forward", None)
        for changes in ({}, {"num_blocks": 5}, {"block_size": 8}, {"copies": 4}):
            with variation.run(**changes) as again:
                assert again.session.stepper.engine.scheduler.is_idle
                assert {again.output(one).token_ids for one in again.snapshot().requests} == {*said}
                assert again.output(0).text == smollm2.output(0).text
        assert "recorded tokens" in variation.to_dict()["note"]

    def test_on_weights_it_computes(self, smollm2: Lab) -> None:
        smollm2.add("The sea is deep and", max_tokens=3)
        smollm2.run()
        with Variation(smollm2, on_weights=True).run(block_size=8) as again:
            assert again.output(0).token_ids == smollm2.output(0).token_ids
            assert again.num_layers == smollm2.num_layers

    def test_past_the_recorded_tokens_an_answer_repeats(self) -> None:
        recorded = RecordedRequest((1, 2, 3, 8, 9), 3)
        assert [recorded.token(position) for position in range(3, 9)] == [8, 9, 8, 9, 8, 9]
        assert RecordedRequest((1, 2, 3), 3).token(5) == 3


class TestCopies:
    def workload(self) -> Workload:
        def add(step: int, token: int) -> AddInput:
            return AddInput(step, pack([token]), RequestOptions(labengine.SamplingParams()))

        return Workload.of([add(0, 1), add(0, 5), add(0, 5), AbortInput(1, 2), add(1, 7), AbortInput(2, 3)])

    def test_the_longest_run_of_equal_requests_is_copied(self) -> None:
        assert self.workload().copied == range(1, 3)

    @pytest.mark.parametrize(
        ("copies", "prompts", "aborted", "sources"),
        [
            (1, [1, 5, 7], [2], [0, 1, 3]),
            (2, [1, 5, 5, 7], [2, 3], [0, 1, 2, 3]),
            (4, [1, 5, 5, 5, 5, 7], [2, 5], [0, 1, 2, 2, 2, 3]),
        ],
    )
    def test_aborts_and_tokens_follow_their_requests(
        self, copies: int, prompts: list[int], aborted: list[int], sources: list[int]
    ) -> None:
        workload = self.workload()
        inputs = [*workload.inputs_with(copies)]
        assert [one.token_ids[0] for one in inputs if isinstance(one, AddInput)] == prompts
        assert [one.request_id for one in inputs if isinstance(one, AbortInput)] == aborted
        assert [workload.source(request_id, copies) for request_id in range(len(prompts))] == sources


def test_a_closed_lab_without_weights_can_be_run_again() -> None:
    with lab() as recorded:
        recorded.step()
    with vary(recorded).run(copies=3) as again:
        assert again.snapshot().num_used_blocks == 6
