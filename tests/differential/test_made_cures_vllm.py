"""The cure that the doctor proposes for a made traffic saves what vLLM 0.32's own scheduler saves with it.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest tests/differential/test_made_cures_vllm.py
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from differential import vllm_traffics
from differential.made_cures import on_vllm, proposed
from differential.vllm_process import VllmProcess
from prefix_doctor.traffics import FAULTY, Made


@pytest.mark.parametrize("make", FAULTY)
def test_a_cure_saves_what_vllm_saves_with_it_and_with_the_known_one(make: Callable[[], Made]) -> None:
    recorded, cure = vllm_traffics.recorded()["made"][make.__name__], proposed(make()).cure
    for figures, side in ((cure.before, "before"), (cure.after, "doctor")):
        assert {name: getattr(figures, name) for name in recorded[side]} == recorded[side]
    saved = recorded["before"]["num_computed"] - recorded["after"]["num_computed"]
    assert cure.num_saved == pytest.approx(saved, rel=0.02)


@pytest.mark.parametrize("make", FAULTY)
def test_vllm_still_computes_what_was_recorded(make: Callable[[], Made], vllm: VllmProcess) -> None:
    assert on_vllm(vllm, make) == vllm_traffics.recorded()["made"][make.__name__]
