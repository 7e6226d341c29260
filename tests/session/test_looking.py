"""Reading a lab: the KV in its blocks, snapshots, the timeline, figures, pictures; and the package's names."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

import labengine
from labengine import Parts
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import BlockAllocated, BlockMerged, PrefixHit, TokenSampled
from labengine.lab import Lab
from labengine.record.fold import fold

STORY = "Once upon a time there was a block that waited in a queue until somebody needed it"


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


def test_a_snapshot_is_plain_json(lab: Lab) -> None:
    lab.add(token_ids=range(14), max_tokens=3)
    lab.step()
    described = lab.snapshot().to_dict()
    assert json.loads(json.dumps(described)) == described
    assert set(described) == {"step", "requests", "blocks", "free_queue", "prefix_map", "cached_free", "groups"}


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


class NamesAStranger(TokenBudgetScheduler):
    """Repeats the events of each token and of a look-up for an unknown request."""

    def append_token(self, request: Request, token_id: int) -> None:
        super().append_token(request, token_id)
        self._hooks.emit(TokenSampled(99, token_id, 3))
        self._hooks.emit(PrefixHit(99, 4, ()))


@pytest.mark.filterwarnings("ignore::labengine.session.violation_warnings.ViolationWarning")
def test_stats_go_on_counting_where_a_part_names_a_request_that_is_not_there() -> None:
    with Lab("simulated", num_blocks=16, block_size=4, parts=Parts(scheduler=NamesAStranger)) as lab:
        lab.generate([list(range(9))], max_tokens=3)
        stats = lab.stats()
        assert lab.hooks.failures == [] and stats.num_sampled_tokens == 3 and stats.hit_rate == 0
        assert list(stats.time_to_first_token) == [0]
        assert any("NamesAStranger.append_token" in violation.message for violation in lab.violations)


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


def test_status_names_what_runs_and_why(smollm2: Lab, lab: Lab) -> None:
    described = smollm2.status()
    assert {"model", "device", "dtype", "attention", "edition", "pool", "state"} <= set(described)
    assert "llama" in described["model"] and described["edition"] == "labengine" and described["state"] == "paused"
    assert "0 of 64 blocks of 4 tokens" in described["pool"]
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


def test_a_lab_has_one_dashboard_and_close_leaves_it(lab: Lab) -> None:
    dashboard = lab.show()
    assert lab.show() is dashboard
    lab.close()
    assert lab.show() is dashboard and dashboard.comm is not None


def test_public_names() -> None:
    assert labengine.Lab is Lab
    for_runners = {"ModelRunner", "StaticRunner", "StaticStep", "StaticTorch"}
    for_ipython = {"load_ipython_extension", "unload_ipython_extension"}
    assert {*dir(labengine)} == {*labengine.__all__, "open", "__version__"} - for_runners - for_ipython
    assert all(hasattr(labengine, name) for name in dir(labengine))
    with pytest.raises(AttributeError, match="public names: "):
        labengine.Laboratory  # noqa: B018
