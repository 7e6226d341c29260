"""What the tap records beside the events, so that another scheduler can be given the same: inputs and settings."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import labengine
from checkout import ROOT
from fake_vllm import FakeRequest, FakeScheduler, run_fake
from labengine_vllm.calls import FEATURES
from labengine_vllm.engine import Engine
from labengine_vllm.kinds import KINDS
from labengine_vllm.settings import settings
from streams import BROKEN_OFF, break_off, tapped

Row = list[Any]


def messages(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.iterdir()
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def calls(folder: Path) -> list[tuple[Row, str]]:
    """Return each input without its place, and the kind of the row behind it; empty at a message's end."""
    found = []
    for message in messages(folder):
        rows = message.get("e", [])
        for place, *words in message.get("inputs", []):
            found.append((words, KINDS[rows[place][0]][0] if place < len(rows) else ""))
    return found


def test_each_call_from_outside_is_recorded_before_its_events(tmp_path: Path) -> None:
    scheduler, _ = tapped(tmp_path)
    run_fake(scheduler)
    scheduler.kv_cache_manager.block_pool.reset_prefix_cache()
    scheduler.shutdown()
    behind: dict[str, set[str]] = {}
    for (word, *_), kind in calls(tmp_path):
        behind.setdefault(word, set()).add(kind)
    assert behind["abort"] == {"BlockFreed"} and behind["update"] == {"TokensComputed"}
    assert behind["reset"] <= {"BlockEvicted", "PrefixCacheReset"}
    assert "PrefixHit" in behind["schedule"] and behind["schedule"] < {
        "PrefixHit",
        "RequestScheduled",
        *scheduling_rows(),
    }


def scheduling_rows() -> set[str]:
    return {"BlockFreed", "BlockAllocated", "BlockEvicted", "BlockCached", "RequestPreempted", "BlockTouched"}


def test_a_salt_is_recorded_as_a_digest(tmp_path: Path) -> None:
    scheduler, _ = tapped(tmp_path)
    for name, salt in (("a", "secret"), ("b", "secret"), ("c", "other")):
        request = FakeRequest(name, [1, 2, 3], 1)
        vars(request)["cache_salt"] = salt
        scheduler.add_request(request)
    scheduler.shutdown()
    salts = [words[1:] for words, _ in calls(tmp_path) if words[0] == "salt"]
    assert [number for number, _ in salts] == [0, 1, 2] and salts[0][1] == salts[1][1] != salts[2][1]
    assert "secret" not in next(tmp_path.iterdir()).read_text(encoding="utf-8")


def test_what_no_other_scheduler_can_follow_is_named(tmp_path: Path) -> None:
    scheduler, _ = tapped(tmp_path)
    request = FakeRequest("cmpl-7", [1, 2, 3], 9)
    vars(request).update(lora_request=object(), mm_features=[], pooling_params=None)
    scheduler.add_request(request)
    first, second = scheduler.schedule(), scheduler.schedule()
    scheduler.update_from_output(second, None)
    scheduler.update_from_output(first, None)
    scheduler._pause_state = SimpleNamespace(name="PAUSED_ALL")
    scheduler.schedule()
    scheduler.shutdown()
    why = [words[1] for words, _ in calls(tmp_path) if words[0] == "unusual"]
    late = "an output arrived that is not the oldest step's"
    assert why == ["request cmpl-7 has a LoRA adapter", late, "the scheduler is paused (PAUSED_ALL)"]


def test_a_loss_that_no_keyframe_follows_is_named_at_the_end(tmp_path: Path) -> None:
    scheduler, tap = tapped(tmp_path)
    request = FakeRequest("a", [1, 2, 3], 9)
    scheduler.add_request(request)
    scheduler.update_from_output(scheduler.schedule(), None)
    tap.recorder.caching = 0
    break_off(scheduler)
    scheduler.shutdown()
    *_, last = messages(tmp_path)
    assert last["end"] == "the engine was shut down" and last["lost"]["request"] == 0
    assert f"It ends at a gap: {BROKEN_OFF}" in labengine.attach(tmp_path).note


def test_a_scheduler_that_says_nothing_of_its_features_is_not_taken_for_one_without_any() -> None:
    found = settings(Engine.of(FakeScheduler()))
    assert "features" not in found and found["max_num_seqs"] is None and found["is_async"] is False


def test_a_scheduler_that_says_nothing_of_its_features_says_where_a_chunk_leaves_states() -> None:
    """As that of vLLM 0.30: without them, a hit on such a state would read one that nothing has written."""
    scheduler = FakeScheduler()
    own = {"mamba_has_prefill_checkpoint_blocks": True, "mamba_prefill_checkpoint_alignment": 2, "hash_block_size": 4}
    vars(scheduler).update(own, cache_config=SimpleNamespace())
    found = settings(Engine.of(scheduler))
    assert "features" not in found and (found["checkpoint_alignment"], found["checkpoint_unit"]) == (2, 4)


def with_features(**others: Any) -> FakeScheduler:
    """Return a scheduler that says how it is set; others: settings in place of ordinary ones."""
    scheduler = FakeScheduler()
    limits = SimpleNamespace(
        policy="priority",
        max_num_batched_tokens=64,
        enable_chunked_prefill=True,
        long_prefill_token_threshold=0,
        long_prefill_token_threshold_adaptive=False,
        scheduler_reserve_full_isl=True,
        watermark=0.0,
    )
    values: dict[str, Any] = {
        "vllm_config": SimpleNamespace(speculative_config=None),
        "scheduler_config": limits,
        "cache_config": SimpleNamespace(enable_prefix_caching=False),
        "parallel_config": SimpleNamespace(pipeline_parallel_size=2),
        **dict.fromkeys(("connector", "ec_connector"), None),
        **dict.fromkeys(("num_lookahead_tokens", "prefix_replay_tokens", "is_encoder_decoder"), 0),
        **dict.fromkeys(("num_sampled_tokens_per_step", "dcp_world_size", "pcp_world_size"), 1),
        "max_num_scheduled_tokens": 64,
        "max_num_active_reqs": 8,
    }
    vars(scheduler).update(values | others)
    return scheduler


def test_features_that_change_decisions_are_listed() -> None:
    found = settings(Engine.of(with_features()))
    assert found["features"] == ["policy priority", "no prefix caching", "pipeline parallelism"]
    assert (found["max_num_seqs"], found["max_num_batched_tokens"], found["watermark"]) == (8, 64, 0.0)


def test_the_page_names_what_is_not_judged() -> None:
    names = ("connector", "ec_connector", "prefix_replay_tokens", "is_encoder_decoder", "max_num_scheduled_tokens")
    scheduler: Any = with_features(**dict.fromkeys(names, 2), dcp_world_size=2, num_sampled_tokens_per_step=0)
    limits = {"policy": "fcfs", "enable_chunked_prefill": False, "scheduler_reserve_full_isl": False}
    vars(scheduler.scheduler_config).update(limits, long_prefill_token_threshold_adaptive=True)
    features = settings(Engine.of(scheduler))["features"]
    page = (ROOT / "docs" / "vllm.md").read_text(encoding="utf-8")
    assert len(features) == 12 and [one for one in (*features, *FEATURES.values()) if one not in page] == []


def test_an_idle_scheduler_that_does_not_get_on_sends_its_calls_too(tmp_path: Path) -> None:
    scheduler, _ = tapped(tmp_path)
    scheduler.add_request(FakeRequest("too long", list(range(99)), 1))
    for _ in range(200):
        scheduler.update_from_output(scheduler.schedule(), None)
    scheduler.shutdown()
    words = [word for (word, *_), _ in calls(tmp_path)]
    assert words.count("schedule") >= 128 and words.count("update") >= 128
