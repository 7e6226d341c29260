"""The pool draws which slots of a registered block are not written yet, until they are."""

from __future__ import annotations

import pytest

from labengine import Lab
from labengine import events as ev
from labengine.core.editions import edition
from labengine.core.nano_vllm.kv_cache_manager import NanoKVCacheManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from widgets.browser.views.mounted_view import MountedView, show_view

pytestmark = pytest.mark.browser

PROMISED = """() => {
  const { scene } = window.mounted.stage.sides[0];
  return [0, 1, 2].map((id) => scene.block(id).promised);
}"""


class RegistersAhead(NanoKVCacheManager):
    """Promises all full blocks of a prompt when its first chunk is computed."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: str) -> int:
        return request.num_tokens if moment == "computed" else 0


def recording(parts: Parts | str) -> list[ev.Event]:
    """A prompt of ten tokens in blocks of four, in chunks of six: two full blocks, one after the other."""
    edition_name, own = (parts, None) if isinstance(parts, str) else ("nano-vllm", parts)
    with Lab("simulated", num_blocks=4, block_size=4, max_num_batched_tokens=6, edition=edition_name, parts=own) as lab:
        lab.session.violation_warnings.is_silent = True
        lab.add(token_ids=range(10), max_tokens=1)
        lab.run()
        assert lab.timeline is not None
        return list(lab.timeline.events())


def promised(events: list[ev.Event]) -> list[tuple[str, list[int]]]:
    """Each event after which the slots that are promised and not written, of blocks 0 to 2, are others."""
    seen: list[tuple[str, list[int]]] = []

    def check(mounted: MountedView) -> None:
        for moment in range(1, len(events) + 1):
            mounted.at(moment)
            now = mounted.page.evaluate(PROMISED)
            if now != (seen[-1][1] if seen else [0, 0, 0]):
                seen.append((type(events[moment - 1]).__name__, now))
            if now == [0, 2, 0]:
                for theme in ("light", "dark"):
                    mounted.picture("promised", theme)

    show_view(check, "pool", events)
    return seen


def test_a_block_registered_ahead_is_marked_until_its_last_slot_is_written() -> None:
    assert promised(recording(Parts(kv_cache_manager=RegistersAhead))) == [
        ("BlockCached", [0, 2, 0]),
        ("SlotsWritten", [0, 0, 0]),
    ]


def test_an_edition_that_registers_at_allocation_promises_within_its_step_only() -> None:
    assert edition("vllm").kv_cache_manager is not NanoKVCacheManager
    assert promised(recording("vllm")) == [
        ("BlockCached", [0, 4, 0]),
        ("SlotsWritten", [0, 0, 0]),
        ("BlockCached", [0, 0, 2]),
        ("SlotsWritten", [0, 0, 0]),
    ]


def test_one_that_registers_what_is_computed_never_promises() -> None:
    assert promised(recording("nano-vllm")) == []
