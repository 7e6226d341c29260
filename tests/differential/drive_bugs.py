"""Bugs of the list on vLLM's own releases: a workload, and a release or an edit of a method that is without the bug.

For bugs that were mended before 0.30, the oldest release that can be driven, an edit of the present method brings the
bug back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import labengine
from labengine.config import GroupSpec
from labengine.driven.driven import Driven
from labengine.driven.model import DrivenModel
from labengine.driven.played_script import played
from labengine.lab import Lab
from labengine.session.compare.comparison import Comparison

INTERPRETERS = {
    "0.30": "LABENGINE_VLLM_030_PYTHON",
    "0.31": "LABENGINE_VLLM_031_PYTHON",
    "0.32": "LABENGINE_VLLM_PYTHON",
}
"""The environment variable that names the interpreter with each release."""

GOLDEN = Path(__file__).parents[1] / "golden" / "vllm-bugs"
MOST_LINES = 12
"""Most lines that are kept of a script's output, besides the last."""

Row = dict[str, Any]
Call = Row | int
"""The keywords of an add, or a number of steps."""


@dataclass(frozen=True)
class Edit:
    """Words of the present text of a method, and words in their place."""

    method: str
    old: str
    new: str


@dataclass(frozen=True)
class Bug:
    """One bug of the list.

    release: the left side's; the right side is release `other`, or the same one with an edit. wrong: the side with the
    bug. rules: those that the lab says are broken there. asserting: as of to_test. symptom: what the script says.
    """

    id: str
    settings: Row
    calls: tuple[Call, ...]
    release: str
    other: str | Edit
    wrong: str
    rules: tuple[str, ...]
    symptom: str
    asserting: Any = None

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases that it is played on."""
        return (self.release, self.other) if isinstance(self.other, str) else (self.release,)

    def faulty(self, comparison: Comparison) -> Lab:
        """Return the side of a comparison that has the bug."""
        side: Lab = getattr(comparison, self.wrong)
        return side


BLOCKS = {"num_blocks": 12, "block_size": 4}
NINE = {"token_ids": range(1, 10), "max_tokens": 1}

BUGS = (
    Bug(
        "vllm-30931",
        BLOCKS,
        (
            {**NINE, "extra_keys": {"lora": "sql", "lora_path": "/one", "lora_int_id": "1"}},
            1,
            {**NINE, "extra_keys": {"lora": "sql", "lora_path": "/two", "lora_int_id": "2"}},
            1,
        ),
        release="0.30",
        other="0.31",
        wrong="left",
        rules=("scope",),
        symptom="request 1 reads position 0 in block 1, which holds another prefix's KV",
    ),
    Bug(
        "vllm-44701",
        BLOCKS,
        (
            {**NINE, "extra_keys": {"lora": "tenant-7", "lora_path": "/tenant-7"}},
            1,
            {**NINE, "cache_salt": "tenant-7"},
            1,
        ),
        release="0.30",
        other="0.31",
        wrong="left",
        rules=("scope",),
        symptom="request 1 reads position 0 in block 1, which holds another prefix's KV",
    ),
    Bug(
        "vllm-43569",
        {
            "num_blocks": 9,
            "block_size": 4,
            "policy": "priority",
            "max_num_seqs": 8,
            "max_num_batched_tokens": 12,
            "long_prefill_token_threshold": 8,
        },
        (
            {"token_ids": range(100, 129), "max_tokens": 1, "priority": 5},
            1,
            {"token_ids": range(200, 204), "max_tokens": 3, "priority": 0},
            4,
        ),
        release="0.32",
        other=Edit(
            "Scheduler._preempt_request",
            "self._free_request_blocks(request)",
            "manager = self.kv_cache_manager\n"
            "    tables = manager.get_block_ids(request.request_id)\n"
            "    first = request.num_computed_tokens // self.block_size\n"
            "    manager.evict_blocks({block for table in tables for block in table[first:]})\n"
            "    self._free_request_blocks(request)",
        ),
        wrong="left",
        rules=("read",),
        symptom="request 0 reads position 20 in block 7, which holds another prefix's KV",
    ),
    Bug(
        "vllm-57610",
        {
            "num_blocks": 40,
            "groups": [GroupSpec(4), GroupSpec(2, kind="sliding_window", window=8)],
            "retention_interval": 0,
        },
        (
            {"token_ids": range(22), "max_tokens": 1},
            1,
            {"token_ids": [*range(17), *range(100, 108)], "max_tokens": 1},
            1,
        ),
        release="0.32",
        other=Edit(
            "SlidingWindowManager.reachable_block_mask", "end - need)", "end - need - alignment_tokens // block_size)"
        ),
        wrong="left",
        rules=(),
        symptom="but should be",
        asserting="right",
    ),
    Bug(
        "vllm-29387",
        {"num_blocks": 32, "groups": [GroupSpec(1), GroupSpec(1, kind="state")]},
        ({"token_ids": (1, 2, 3, 4), "max_tokens": 2}, {"token_ids": (1, 2, 3, 5), "max_tokens": 2}, 4),
        release="0.32",
        other=Edit("MambaManager.get_num_blocks_to_allocate", "return self.block_pool.num_gpu_blocks + 1", "pass"),
        wrong="right",
        rules=("write", "read"),
        symptom="request 1 continues after 3 tokens from block 4, which has another state",
    ),
    Bug(
        "vllm-39734",
        {
            "num_blocks": 17,
            "groups": [GroupSpec(4), GroupSpec(4, kind="sliding_window", window=8)],
            "max_num_seqs": 8,
            "max_num_batched_tokens": 8,
        },
        ({"token_ids": range(40), "max_tokens": 1}, {"token_ids": range(100, 103), "max_tokens": 1}, 6),
        release="0.32",
        other=Edit("SingleTypeKVCacheManager.get_num_blocks_to_allocate", "if apply_admission_cap and", "if False and"),
        wrong="right",
        rules=(),
        symptom="after 400 more steps some requests have not ended",
    ),
)


def missing(bug: Bug) -> list[str]:
    """Return the environment variables that would have to name an interpreter."""
    return [INTERPRETERS[release] for release in bug.releases if not os.environ.get(INTERPRETERS[release])]


@contextmanager
def compared(bug: Bug) -> Iterator[Comparison]:
    """Play a bug's workload on a release, and on another one or with the edit."""
    with _lab(bug, bug.release) as lab:
        _play(bug, lab)
        if isinstance(bug.other, Edit):
            text = _model(lab).described(bug.other.method)["text"]
            assert bug.other.old in text, f"{bug.other.method} has no {bug.other.old!r} in {_model(lab).name}"
            patch = labengine.Patch(bug.other.method, text.replace(bug.other.old, bug.other.new))
            with lab.rerun(patch) as comparison:
                yield comparison
        else:
            with _lab(bug, bug.other) as other:
                _play(bug, other)
                yield labengine.compare(lab, other)


def _lab(bug: Bug, release: str) -> Lab:
    lab = labengine.drive("vllm", os.environ[INTERPRETERS[release]], **bug.settings)
    assert _model(lab).name.startswith(f"vllm {release}."), f"{INTERPRETERS[release]} has {_model(lab).name}"
    return lab


def _play(bug: Bug, lab: Lab) -> None:
    for call in bug.calls:
        if isinstance(call, int):
            lab.step(call)
        else:
            lab.add(**call)


def _model(lab: Lab) -> DrivenModel:
    model = lab.session.model
    assert isinstance(model, DrivenModel)
    return model


def output_of(script: str, lab: Lab) -> str:
    """Run a script in the interpreter of a lab's engine; return the first lines that it prints, and its last words."""
    driven: Driven = _model(lab).driven
    (run,) = played([(driven, script)])
    return "\n".join([*run.output.splitlines()[:MOST_LINES], run.said, ""])
