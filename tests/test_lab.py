"""The front desk, as a user meets it: on the simulated model, and on SmolLM2 where words or KV matter."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import labengine
from labengine.core.parts import Parts
from labengine.core.prefix_cache import MergePolicy
from labengine.core.step_plan import StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import BlockAllocated, BlockMerged, EngineStarted, PrefixHit, StepStarted
from labengine.lab import Lab
from labengine.timeline import fold

PATIENCE = 20.0
"""Seconds after which a test gives up on another thread."""

STORY = "Once upon a time there was a block that waited in a queue until somebody needed it"


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.001)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Twelve blocks of four tokens, no weights."""
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        yield lab


# -- adding and stepping -----------------------------------------------------------------------------------------------


def test_two_equal_requests_and_one_step(lab: Lab) -> None:
    assert [lab.add(token_ids=range(14), max_tokens=3), lab.add(token_ids=range(14), max_tokens=3)] == [0, 1]
    report = lab.step()
    assert report and report.step == 1
    assert report.scheduled == {0: 14, 1: 14} and set(report.sampled) == {0, 1}
    assert report.peak_used_blocks == 8 and report.preempted == report.finished == ()
    snapshot = lab.snapshot()
    assert snapshot.num_used_blocks == 5
    assert sorted(block.ref_count for block in snapshot.blocks if block.ref_count) == [1, 1, 2, 2, 2]
    assert lab.check() == []


def test_the_other_edition_keeps_eight() -> None:
    with Lab("simulated", num_blocks=12, block_size=4, edition="nano-vllm") as lab:
        for _ in range(2):
            lab.add(token_ids=range(14), max_tokens=3)
        lab.step()
        assert lab.snapshot().num_used_blocks == 8 and len(lab.snapshot().lost_blocks) == 3


def test_parts_replace_a_field_of_the_edition() -> None:
    with Lab("simulated", num_blocks=12, block_size=4, parts=Parts(name="no merge", merge_policy=MergePolicy)) as lab:
        for _ in range(2):
            lab.add(token_ids=range(14), max_tokens=3)
        lab.step()
        assert lab.snapshot().num_used_blocks == 8
        assert lab.status()["edition"] == "no merge"


def test_a_step_without_work_is_falsy_and_changes_nothing(lab: Lab) -> None:
    before = lab.snapshot()
    assert not lab.step()
    assert lab.snapshot() == before


def test_phases_are_the_same_step(lab: Lab) -> None:
    lab.add(token_ids=range(6), max_tokens=2)
    assert list(lab.phases()) == ["schedule", "forward", "sample", "update"]
    assert lab.phase == "update" and lab.snapshot().step == 1
    assert list(lab.phases())[-1] == "update"
    assert list(lab.phases()) == [] and lab.next_phase() is None


def test_a_step_left_open_is_finished_by_the_next_wish(lab: Lab) -> None:
    lab.add(token_ids=range(14), max_tokens=3)
    for phase in lab.phases():
        if phase == "forward":
            break
    assert lab.phase == "forward" and lab.snapshot().requests[0].num_computed_tokens == 0
    assert lab.add(token_ids=range(3), max_tokens=3) == 1
    state = lab.snapshot()
    assert state.step == 1 and state.requests[0].num_computed_tokens == 14
    assert state.requests[1].status == "waiting"
    assert lab.check() == []


def test_step_finishes_an_open_step_and_reports_it(lab: Lab) -> None:
    lab.add(token_ids=range(14), max_tokens=3)
    assert lab.next_phase() == "schedule"
    report = lab.step()
    assert report.step == 1 and report.scheduled == {0: 14}


def test_reset_takes_an_open_step_back_before_it_starts_anew(lab: Lab) -> None:
    lab.add(token_ids=range(14), max_tokens=3)
    lab.next_phase()
    lab.reset()
    assert lab.timeline is not None
    assert [type(event) for event in lab.timeline.events()] == [EngineStarted]
    assert lab.timeline.state().snapshot() == lab.snapshot()


def test_run_until_nothing_is_left_or_a_condition_holds(lab: Lab) -> None:
    lab.add(token_ids=range(6), max_tokens=5)
    lab.run(until=lambda lab: lab.snapshot().step == 2)
    assert lab.snapshot().step == 2 and not lab.is_running
    seen: list[bool] = []
    lab.hooks.subscribe(lambda event: seen.append(lab.is_running), StepStarted)
    lab.run()
    assert seen == [True] * 3 and lab.output(0).finish_reason == "length"


def test_reset_empties_everything_but_the_listeners(lab: Lab) -> None:
    heard: list[object] = []
    lab.hooks.subscribe(heard.append, StepStarted)
    empty = lab.snapshot()
    lab.generate([[1, 2, 3, 4, 5]], max_tokens=3)
    assert heard and lab.snapshot() != empty
    heard.clear()
    lab.reset()
    assert lab.snapshot() == empty
    assert lab.stats().num_requests == lab.stats().num_steps == lab.stats().peak_used_blocks == 0
    assert lab.add(token_ids=[1, 2, 3], max_tokens=3) == 0
    lab.step()
    assert len(heard) == 1


# -- ending ------------------------------------------------------------------------------------------------------------


def test_abort_while_running_frees_at_once(lab: Lab) -> None:
    lab.add(token_ids=range(14), max_tokens=3)
    lab.add(token_ids=range(50, 60), max_tokens=3)
    lab.step()
    assert lab.abort(0) is True
    assert lab.snapshot().requests[0].status == "finished" and lab.snapshot().requests[0].block_tables == ((),)
    assert lab.output(0).finish_reason == "abort" and len(lab.output(0).token_ids) == 1
    assert lab.abort(0) is False
    assert lab.check() == []
    lab.run()
    assert lab.output(1).finish_reason == "length"


def test_abort_while_waiting(lab: Lab) -> None:
    lab.add(token_ids=range(4), max_tokens=3)
    assert lab.abort(0) and not lab.step()


def test_eos_stops_and_is_kept_unless_ignored(smollm2: Lab) -> None:
    prompt = [{"role": "user", "content": "2+2=?"}]
    stops, goes_on = smollm2.chat(prompt, max_tokens=12), smollm2.chat(prompt, max_tokens=12, ignore_eos=True)
    smollm2.run()
    output, longer = smollm2.output(stops), smollm2.output(goes_on)
    assert output.finish_reason == "stop" and output.token_ids[-1] in smollm2.config.eos_token_ids
    assert output.text and "<|" not in output.text
    assert longer.finish_reason == "length" and len(longer.token_ids) == 12
    assert longer.token_ids[: len(output.token_ids)] == output.token_ids


# -- words -------------------------------------------------------------------------------------------------------------


def test_generate_one_text_and_several(smollm2: Lab) -> None:
    (one,) = smollm2.generate("The capital of France is", max_tokens=4)
    assert "Paris" in one.text and one.finish_reason == "length" and len(one.token_ids) == 4
    several = smollm2.generate(["The capital of France is", "One, two, three,"], max_tokens=4)
    assert several[0].token_ids == one.token_ids and "four" in several[1].text
    assert [output.request_id for output in several] == [1, 2]
    (by_ids,) = smollm2.generate([smollm2.encode("The capital of France is")], max_tokens=4)
    assert by_ids.token_ids == one.token_ids


def test_generate_takes_token_ids_of_one_prompt_too(lab: Lab) -> None:
    (output,) = lab.generate([1, 2, 3], max_tokens=2)
    assert len(output.token_ids) == 2 and lab.generate([]) == []


def test_generate_returns_when_its_own_are_done(lab: Lab) -> None:
    lab.add(token_ids=range(4), max_tokens=20)
    lab.generate([[7, 8, 9]], max_tokens=2)
    assert lab.snapshot().requests[0].status == "running"


def test_stream_yields_the_text_piece_by_piece(smollm2: Lab) -> None:
    (whole,) = smollm2.generate("The capital of France is", max_tokens=8)
    pieces = list(smollm2.stream(smollm2.add("The capital of France is", max_tokens=8)))
    assert len(pieces) > 2 and "".join(pieces) == whole.text


def test_stream_holds_back_half_a_character(smollm2: Lab) -> None:
    request_id = smollm2.add("I love pizza 🍕🍕🍕🍕🍕🍕🍕🍕", max_tokens=12, ignore_eos=True)
    pieces = list(smollm2.stream(request_id))
    assert "".join(pieces) == smollm2.output(request_id).text
    assert "�" not in "".join(pieces[:-1])


def test_stream_follows_the_background(lab: Lab) -> None:
    request_id = lab.add(token_ids=range(6), max_tokens=30)
    lab.start()
    assert "".join(lab.stream(request_id)) == lab.output(request_id).text
    assert lab.output(request_id).finish_reason == "length"


def test_stream_ends_when_a_reset_sweeps_its_request_away(lab: Lab) -> None:
    stream = lab.stream(lab.add(token_ids=range(6), max_tokens=30))
    next(stream)
    lab.reset()
    lab.add(token_ids=range(6), max_tokens=30)
    assert list(stream) == [] and lab.snapshot().step == 0


def test_chat_goes_through_the_template(smollm2: Lab) -> None:
    request_id = smollm2.chat([{"role": "user", "content": "What is the capital of France?"}], max_tokens=8)
    prompt = smollm2.snapshot().requests[request_id].token_ids
    text = "".join(map(smollm2.token_text, prompt))
    assert "<|im_start|>user" in text and text.rstrip().endswith("<|im_start|>assistant")
    smollm2.run()
    assert "Paris" in smollm2.output(request_id).text


def test_seeded_sampling_repeats_and_seeds_differ(smollm2: Lab) -> None:
    def say(seed: int) -> tuple[int, ...]:
        return smollm2.generate("The best thing about", max_tokens=5, temperature=1.0, seed=seed)[0].token_ids

    assert say(1) == say(1)
    assert len({say(seed) for seed in range(3)}) > 1


# -- KV ----------------------------------------------------------------------------------------------------------------


def test_the_duplicate_can_be_read_inside_the_merge_and_equals_the_original(smollm2: Lab) -> None:
    import torch

    pairs: list[tuple[Any, ...]] = []

    def read(event: BlockMerged) -> None:
        for layer in (0, 17, smollm2.num_layers - 1):
            pairs.append((*smollm2.kv(event.block_id, layer), *smollm2.kv(event.into_block_id, layer)))

    with smollm2.hooks.subscribe(read, BlockMerged):
        for _ in range(2):
            smollm2.add(STORY, max_tokens=2)
        smollm2.step()
    assert smollm2.hooks.failures == [] and len(pairs) == 3 * (len(smollm2.encode(STORY)) // 4)
    for key, value, kept_key, kept_value in pairs:
        assert key.shape == value.shape == (4, 3, 64)
        assert key.abs().max() > 0.1 and value.abs().max() > 0.001
        torch.testing.assert_close(key, kept_key, atol=1e-4, rtol=0)
        torch.testing.assert_close(value, kept_value, atol=1e-4, rtol=0)


def test_kv_is_a_copy(smollm2: Lab) -> None:
    smollm2.add(STORY, max_tokens=2)
    smollm2.step()
    block_id = smollm2.snapshot().requests[0].block_tables[0][0]
    key, _ = smollm2.kv(block_id, 0)
    key.zero_()
    assert smollm2.kv(block_id, 0)[0].abs().max() > 0.1


def test_kv_of_what_does_not_exist(smollm2: Lab, lab: Lab) -> None:
    with pytest.raises(IndexError, match="blocks 0 to 63"):
        smollm2.kv(64, 0)
    with pytest.raises(IndexError, match="layers 0 to 29"):
        smollm2.kv(0, 30)
    with pytest.raises(labengine.ConfigError, match="no KV"):
        lab.kv(0, 0)


# -- looking -----------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_plain_json(lab: Lab) -> None:
    lab.add(token_ids=range(14), max_tokens=3)
    lab.step()
    told = lab.snapshot().to_dict()
    assert json.loads(json.dumps(told)) == told
    assert set(told) == {"step", "requests", "blocks", "free_queue", "prefix_map", "cached_free", "groups"}


def test_the_timeline_adds_up_to_the_snapshot(lab: Lab) -> None:
    lab.generate([list(range(9)), list(range(9)), [5] * 7], max_tokens=6)
    assert lab.timeline is not None
    assert fold(lab.timeline.events()) == lab.timeline.state().snapshot() == lab.snapshot() == lab.fold().snapshot()


def test_recording_off_and_recording_short() -> None:
    with Lab("simulated", record=False, check=False) as silent:
        silent.generate([[1, 2, 3]], max_tokens=3)
        assert silent.timeline is None and BlockAllocated not in silent.hooks
    with Lab("simulated", record=50) as short:
        short.generate([[1, 2, 3]], max_tokens=60)
        assert short.timeline is not None and short.timeline.num_dropped > 0
        assert short.timeline.state().snapshot() == short.snapshot()


def test_stats_are_sane(lab: Lab) -> None:
    started = time.perf_counter()
    lab.generate([list(range(9)), list(range(9))], max_tokens=3)
    lab.generate([list(range(9))], max_tokens=3)
    lasted, stats = time.perf_counter() - started, lab.stats()
    assert (stats.num_requests, stats.num_finished, stats.num_sampled_tokens) == (3, 3, 9)
    assert stats.num_steps == lab.snapshot().step == 6
    assert stats.hit_rate == pytest.approx(8 / 27)
    assert 0 < stats.seconds_stepping < lasted
    assert stats.tokens_per_second == pytest.approx(9 / stats.seconds_stepping)
    assert set(stats.time_to_first_token) == {0, 1, 2}
    assert all(0 < seconds < lasted for seconds in stats.time_to_first_token.values())
    assert stats.occupancy == 0 and stats.peak_used_blocks == 6


def test_the_hit_rate_stays_below_one_when_preempted_requests_find_their_own_answers() -> None:
    with labengine.Lab("simulated", num_blocks=12, block_size=2) as lab:
        lab.generate([[1], [2], [3]], max_tokens=16)
        hits = lab.timeline.of_kind(PrefixHit) if lab.timeline else []
        assert max(hit.num_tokens for hit in hits) > 1, "a preempted request found generated tokens"
        assert 0 < lab.stats().hit_rate < 1


def test_occupancy_counts_used_blocks(lab: Lab) -> None:
    lab.add(token_ids=range(10), max_tokens=3)
    lab.step()
    assert lab.stats().occupancy == 3 / 12


def test_status_tells_what_runs_and_why(smollm2: Lab, lab: Lab) -> None:
    told = smollm2.status()
    assert {"model", "device", "dtype", "attention", "edition", "pool", "state"} <= set(told)
    assert "llama" in told["model"] and told["edition"] == "labengine" and told["state"] == "paused"
    assert "0 of 64 blocks of 4 tokens" in told["pool"]
    assert "simulated" in lab.status()["model"]


def test_equal_prompts_share_only_under_equal_salt(lab: Lab) -> None:
    for salt in ("a", "b", "a"):
        lab.generate([list(range(9))], max_tokens=1, cache_salt=salt)
    assert lab.stats().hit_rate == pytest.approx(8 / 27)


def test_the_repr_is_a_picture(lab: Lab) -> None:
    lab.add(token_ids=range(14), max_tokens=3)
    lab.step()
    picture = repr(lab)
    assert picture.startswith("simulated · edition labengine · 12 blocks of 4\n")
    assert "4 of 12 blocks used" in picture
    assert all(re.search(rf"#{block_id}\b", picture) for block_id in range(12))


def test_the_mimebundle_has_a_widget_and_a_picture(lab: Lab) -> None:
    data, _ = lab._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "0 of 12 blocks used" in data["text/plain"] and data["image/svg+xml"].startswith("<svg")


def test_a_lab_has_one_dashboard_and_close_ends_it(lab: Lab) -> None:
    dashboard = lab.show()
    assert lab.show() is dashboard
    lab.close()
    assert dashboard.comm is None


# -- many hands --------------------------------------------------------------------------------------------------------


def test_threads_add_while_it_runs() -> None:
    errors: list[BaseException] = []
    with Lab("simulated", num_blocks=64, block_size=4) as lab:
        lab.add(token_ids=range(4), max_tokens=200)

        def add_some(name: int) -> None:
            try:
                for i in range(20):
                    request_id = lab.add(f"thread {name} says number {i} and more", max_tokens=3)
                    prompt = lab.snapshot().requests[request_id].token_ids[:7]
                    assert "".join(map(lab.token_text, prompt)) == f"thread {name} says number {i} and more"
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=add_some, args=(name,), daemon=True) for name in range(6)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            lab.run()
        lab.run()
        assert errors == []
        state = lab.snapshot()
        assert len(state.requests) == 121 and {r.status for r in state.requests.values()} == {"finished"}
        assert lab.check() == [] and lab.hooks.failures == []
        assert lab.timeline is not None and lab.timeline.state().snapshot() == state


def test_threads_add_texts_to_the_real_model_while_it_runs(smollm2: Lab) -> None:
    (expected,) = smollm2.generate("One, two, three,", max_tokens=4)
    errors: list[BaseException] = []

    def add_some() -> None:
        try:
            for _ in range(5):
                smollm2.add("One, two, three,", max_tokens=4)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=add_some, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    smollm2.run(until=lambda lab: False)
    for thread in threads:
        thread.join(PATIENCE)
    smollm2.run()
    assert errors == [] and smollm2.check() == []
    outputs = [smollm2.output(request_id).token_ids for request_id in smollm2.snapshot().requests]
    assert len(outputs) == 21 and set(outputs) == {expected.token_ids}


def test_the_background_works_and_the_desk_stays_open(smollm2: Lab) -> None:
    smollm2.add("One, two, three,", max_tokens=60, ignore_eos=True)
    smollm2.start()
    assert smollm2.is_running and smollm2.status()["state"] == "running"
    wait_until(lambda: smollm2.snapshot().step > 2)
    second = smollm2.add("The capital of France is", max_tokens=4)
    wait_until(lambda: smollm2.output(second).finish_reason is not None)
    assert "Paris" in smollm2.output(second).text
    smollm2.pause()
    step = smollm2.snapshot().step
    assert not smollm2.is_running and smollm2.snapshot().requests[0].status == "running"
    time.sleep(0.05)
    assert smollm2.snapshot().step == step and smollm2.check() == []


def test_work_added_while_the_background_runs_is_done(lab: Lab) -> None:
    lab.add(token_ids=range(4), max_tokens=20)
    lab.start()
    added = [lab.add(token_ids=range(i, i + 5), max_tokens=5) for i in range(4)]
    lab.start()
    wait_until(lambda: all(lab.output(request_id).finish_reason == "length" for request_id in [0, *added]))
    wait_until(lambda: not lab.is_running)


def test_an_error_in_the_background_ends_the_run_and_is_kept(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.add(token_ids=range(6), max_tokens=5)
    before = lab.snapshot()

    def fail(plan: object) -> None:
        raise RuntimeError("no more memory")

    with monkeypatch.context() as patched:
        patched.setattr(lab._model.runner, "forward", fail)
        lab.start()
        wait_until(lambda: not lab.is_running)
    assert str(lab.background_error) == "no more memory"
    assert lab.snapshot() == before and lab.check() == []
    lab.start()
    wait_until(lambda: not lab.is_running)
    assert lab.background_error is None and lab.output(0).finish_reason == "length"


def test_posted_wishes_answer_with_a_future(lab: Lab) -> None:

    bench = lab.bench()
    assert bench.post("add", prompt="a b c", copies=2, max_tokens=3).result(PATIENCE) == [0, 1]
    assert bench.post("phase").result(PATIENCE) == "schedule" and bench.phase == "schedule"
    assert bench.post("step").result(PATIENCE).step == 1 and bench.phase is None
    assert bench.post("abort", request_id=0).result(PATIENCE) is True
    assert isinstance(bench.post("abort", request_id=9).exception(PATIENCE), KeyError)
    bench.post("start").result(PATIENCE)
    wait_until(lambda: not bench.is_running)
    bench.post("pause").result(PATIENCE)
    bench.post("reset").result(PATIENCE)
    assert lab.snapshot().requests == {}


# -- closing -----------------------------------------------------------------------------------------------------------


def test_close_stops_everything_and_looking_still_works() -> None:
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        lab.add(token_ids=range(6), max_tokens=10)
        lab.step()
        before = lab.snapshot()
        lab.start()
        lab.pause()
    lab.close()
    assert lab.snapshot().step >= before.step and lab.check() == [] and lab.status()["state"] == "closed"
    assert lab.output(0).finish_reason in (None, "length") and "12 blocks" in repr(lab)
    closed: list[Callable[[], object]] = [lab.step, lab.next_phase, lab.start, lab.reset, lambda: lab.abort(0)]
    for call in closed:
        with pytest.raises(RuntimeError, match="closed; make a new one"):
            call()
    thread = lab._stepper.background._thread
    assert thread is not None and not thread.is_alive()


def test_public_names() -> None:
    assert labengine.Lab is Lab
    assert set(labengine.__all__) <= set(dir(labengine))
    with pytest.raises(AttributeError, match="public names: "):
        labengine.Laboratory  # noqa: B018


def test_a_scheduler_that_starves_somebody_is_told_of_instead_of_waiting_for_ever():
    class Starving(TokenBudgetScheduler):
        def schedule(self) -> StepPlan:
            return StepPlan(())

    with labengine.Lab("simulated", parts=labengine.Parts(scheduler=Starving)) as lab:
        lab.add(token_ids=[1, 2, 3])
        with pytest.raises(RuntimeError, match="requests wait: 0"):
            lab.run()
        lab.start()
        wait_until(lambda: not lab.is_running)
        assert "requests wait: 0" in str(lab.background_error)
        assert lab.check() == []
