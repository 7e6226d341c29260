"""The rules `scope`, `named` and `tier`: reported bugs played by an override, and the right version beside each.

Numbers are of the reports; blocks are of 4 tokens, and X, Y, Z are a block each.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from check.watched import Watched, watched
from driving import as_parts
from labengine import events as ev
from labengine.core.block_pool import BlockPool
from labengine.core.connector import BlockKV, BlockTransfer, Connector, KVAccess
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.engine.external import Delayed, DiskStore, HostStore
from labengine.engine.external.store import StoreError
from labengine.events import EvictReason
from labengine.lab import Lab
from labengine.record.violation import Violation
from labengine.scenarios import bug
from reported import KeepsKeysBesideNull

X, Y, Z = (range(first, first + 4) for first in (100, 200, 300))


def of_rule(setup: Watched, rule: str) -> list[Violation]:
    """The violations of a rule."""
    return [violation for violation in setup.watch.violations if violation.rule == rule]


def overriding(edition: str, **parts: Any) -> Parts:
    """An edition with some parts replaced."""
    return Parts(**parts).overriding(as_parts(edition))


# -- SGLang 38319: a block keeps its key when another request gets it --------------------------------------------------


def aborted_prefill(edition: str | Parts) -> Watched:
    """A prompt is aborted after its first chunk, and its block goes to another request."""
    setup = watched(5, edition=edition, budget=4)
    aborted = setup.add(*X, *Y, *Z, 1)
    setup.steps(1)
    setup.engine.abort(aborted)
    setup.add(*range(500, 513))
    setup.run()
    return setup


def test_a_key_that_a_block_keeps_is_named_before_a_request_reads_it() -> None:
    setup = aborted_prefill(overriding("vllm", block_pool=KeepsKeysBesideNull))
    [named] = setup.watch.violations
    assert named.rule == "named" and isinstance(event := setup.first_event("named"), ev.BlockAllocated)
    assert named.block_ids == (event.block_id,) and event.request_id == 1
    assert named.block_ids == (event.block_id,)
    assert "tokens 0 to 3 of request 0" in named.message and "KV of other tokens" in named.message
    assert named.message.endswith("for request 1 (KeepsKeys.take)")
    setup.add(*X, 2, 3, max_tokens=2)
    setup.run()
    assert "read" in setup.broken_rules()


def test_blocks_that_lose_their_keys_are_right() -> None:
    setup = aborted_prefill("vllm")
    setup.add(*X, 2, 3, max_tokens=2)
    setup.run()
    assert setup.watch.violations == []


# -- TokenSpeed 976: a prompt shorter than a block begins its chain without the adapter --------------------------------


class KeysPromptsOnly(KVCacheManager):
    """Begins the chain of a block that decoding has filled without the extra keys."""

    def extend_hashes(self, request: Request, num_tokens: int) -> None:
        size = self._config.hash_block_size
        if request.block_hashes or request.num_prompt_tokens >= size or num_tokens < size:
            return super().extend_hashes(request, num_tokens)
        token_ids = tuple(request.token_ids[:size])
        request.block_hashes.append(self._hash_chain.link(self._hash_chain.root(()), token_ids))
        request.links.append(token_ids)
        return super().extend_hashes(request, num_tokens)


def short_prompt_with_adapter(edition: str | Parts) -> Watched:
    """Three tokens with an adapter and four decoded ones; then the first block without the adapter."""
    setup = watched(8, edition=edition)
    setup.add(1, 2, 3, max_tokens=4, extra_keys=(("lora", "a"),))
    setup.run()
    setup.add(1, 2, 3, setup.engine.requests[0].token_ids[3], 9, 9)
    setup.run()
    return setup


def test_a_hit_on_blocks_of_an_adapter_that_the_request_has_not() -> None:
    setup = short_prompt_with_adapter(overriding("nano-vllm", kv_cache_manager=KeysPromptsOnly))
    [scope], [read] = of_rule(setup, "scope"), of_rule(setup, "read")
    assert isinstance(event := setup.first_event("scope"), ev.PrefixHit) and event.num_tokens == 4
    assert scope.request_ids == (0, 1) and scope.block_ids == event.block_ids[0]
    assert "registered under adapter 'a'" in scope.message
    assert scope.message.endswith("request 1 has no adapter (KeysPromptsOnly.extend_hashes)")
    assert "the same tokens under adapter 'a'" in read.message
    assert setup.watch.violations[0] is scope, "before the read"


@pytest.mark.parametrize("edition", ["nano-vllm", "vllm", "labengine"])
def test_a_chain_that_begins_with_the_adapter_is_right(edition: str) -> None:
    assert short_prompt_with_adapter(edition).watch.violations == []


def test_an_adapters_number_is_left_out_of_the_key_as_in_vllm() -> None:
    setup = watched(8, edition="vllm")
    for number in ("1", "2"):
        setup.add(*X, 1, extra_keys=(("lora", "a"), ("lora_int_id", number)))
        setup.run()
    assert setup.timeline.of_kind(ev.PrefixHit)[-1].num_tokens == 4  # type: ignore[attr-defined]
    assert setup.watch.violations == []


# -- LMCache 4991: a failed store leaves its key visible ---------------------------------------------------------------


class FilesTheFirst(HostStore):
    """Its second put files the bytes of the first one. (A chain's last block is put first.)"""

    def _put(self, key: tuple[int, bytes], kv: BlockKV | None) -> None:
        kept = list(self._contents.values())
        super()._put(key, kept[0] if len(kept) == 1 else kv)


class LeavesTheKey(HostStore):
    """Its second put fails, and its key stays."""

    def _put(self, key: tuple[int, bytes], kv: BlockKV | None) -> None:
        super()._put(key, kv)
        if len(self) == 2:
            raise StoreError("the disk is full")


def stored_and_loaded(store: Connector) -> Watched:
    """A prompt of three blocks is saved, and loaded into an empty pool."""
    setup = watched(9, edition="vllm", connector=store)
    for last in (1, 2):
        setup.add(*X, *Y, *Z, last)
        setup.run()
        setup.engine.reset_prefix_cache()
    return setup


def test_other_bytes_under_a_key_are_named_with_the_load() -> None:
    setup = stored_and_loaded(FilesTheFirst())
    [named] = of_rule(setup, "named")
    assert isinstance(setup.first_event("named"), ev.BlocksLoaded)
    assert "tokens 4 to 7 of request 1" in named.message and "KV of position 8" in named.message
    assert named.message.endswith("(overridden: FilesTheFirst._put)")
    assert setup.broken_rules() == {"named", "read"}


@pytest.mark.parametrize("is_late", [False, True])
def test_a_request_that_counts_on_what_was_never_stored(is_late: bool) -> None:
    setup = stored_and_loaded(Delayed(LeavesTheKey()) if is_late else LeavesTheKey())
    [tier] = setup.watch.violations
    assert tier.rule == "tier" and tier.request_ids == (1,)
    assert isinstance(setup.first_event("tier"), ev.ExternalHit)
    assert tier.request_ids == (1,) and "tokens 4 to 7 (0:" in tier.message
    assert tier.message.endswith("(overridden: LeavesTheKey._put)")


@pytest.mark.parametrize("is_late", [False, True])
def test_stored_blocks_are_right(is_late: bool) -> None:
    setup = stored_and_loaded(Delayed(HostStore()) if is_late else HostStore())
    assert setup.timeline.of_kind(ev.ExternalHit)[-1].num_tokens == 12  # type: ignore[attr-defined]
    assert setup.watch.violations == []


def test_a_tier_that_others_change_is_not_judged(tmp_path: Path) -> None:
    """A folder that holds an earlier engine's blocks, and a store that two engines use in turn."""
    for store in (DiskStore(tmp_path), HostStore()):
        store.bind("the model")
        first = stored_and_loaded(store)
        again = stored_and_loaded(store)
        assert len(again.timeline.of_kind(ev.ExternalHit)) == 2
        again.add(*Z, *Y, 1)
        again.run()
        first.add(*Z, *Y, 2)
        first.run()
        assert len(first.timeline.of_kind(ev.ExternalHit)) == 2
        assert first.watch.violations == again.watch.violations == []


def test_a_store_with_a_cap_is_right_about_what_it_dropped() -> None:
    setup = watched(9, edition="vllm", connector=HostStore(max_blocks=4))
    for prompt in ((*X, *Y, 1), (*Y, *Z, 1), (*X, *Z, 1), (*X, *Y, 2)):
        setup.add(*prompt)
        setup.run()
        setup.engine.reset_prefix_cache()
    dropped = [event for event in setup.timeline.of_kind(ev.TierChanged) if event.dropped]  # type: ignore[attr-defined]
    assert dropped and setup.timeline.of_kind(ev.ExternalHit)
    assert setup.watch.violations == []


# -- nano-vLLM of July 2025: equal own tokens after another prefix -----------------------------------------------------


def stale_entry(edition: str) -> Watched:
    """A map entry of XZ leads to a block that holds Z after Y by now."""
    setup = watched(4, edition=edition)
    for prompt in ((*X, *Z, 1), (*X, 2), (*Y, *Z, 3), (*X, *Z, 1)):
        setup.add(*prompt)
        setup.run()
    return setup


def test_a_block_that_is_registered_for_another_prefix() -> None:
    setup = stale_entry("nano-vllm-2025-07")
    [named], [read] = of_rule(setup, "named"), of_rule(setup, "read")
    assert isinstance(event := setup.first_event("named"), ev.BlockCached)
    assert (event.request_id, event.block_id) == (3, *named.block_ids)
    for violation in (named, read):
        assert "after a different prefix" in violation.message and "for request 2" in violation.message


def test_an_entry_that_goes_with_its_content_is_right() -> None:
    assert stale_entry("nano-vllm").watch.violations == []


# -- kvcached 362: the map leads to another's content ------------------------------------------------------------------


class RestoresKeys(BlockPool):
    """Takes blocks, and gives them back what they were known by."""

    def take(self, num_blocks: int) -> list[int]:
        before = [(block, block.keys, block.token_ids, block.prefix) for block in self.blocks]
        prefix_map = dict(self.prefix_map)
        taken = super().take(num_blocks)
        for block, keys, token_ids, prefix in before:
            if block.block_id in taken:
                block.keys, block.token_ids, block.prefix = keys, token_ids, prefix
                self.prefix_map.update({key: prefix_map[key] for key in keys})
        return taken


def test_a_key_that_only_the_core_knows_of_is_named_with_the_eviction() -> None:
    setup = watched(4, edition=overriding("labengine", block_pool=RestoresKeys))
    setup.add(*X, *Y, 1)
    setup.run()
    setup.add(*range(500, 514))
    setup.steps(1)
    said, named = of_rule(setup, "said"), of_rule(setup, "named")
    assert said and named and named[0].first_event == said[0].first_event
    assert isinstance(setup.first_event("named"), ev.BlockEvicted)
    assert named[0].message.endswith("for request 1 (RestoresKeys.take)")


# -- vLLM 11565: a refusal leaves references behind --------------------------------------------------------------------


class TouchesFirst(KVCacheManager):
    """Touches the hits before it is known whether the request fits."""

    def can_admit(self, request: Request, hit: Hit, num_external: int = 0, num_spare: int = 0) -> bool:
        for block_ids in hit.block_ids:
            self.pool.touch(block_ids)
        return super().can_admit(request, hit, num_external, num_spare)


def refused(edition: str | Parts) -> Watched:
    """A request hits a block, and does not fit beside another one."""
    setup = watched(5, edition=edition)
    setup.add(*X, 1)
    setup.run()
    setup.add(*range(500, 510), max_tokens=6)
    setup.steps(1)
    setup.add(*X, *Y, *Z, 3)
    setup.steps(1)
    return setup


def test_references_that_a_refusal_leaves_are_reported_by_the_step() -> None:
    setup = refused(overriding("labengine", kv_cache_manager=TouchesFirst))
    [said], [counted] = of_rule(setup, "said"), of_rule(setup, "ref_count")
    assert counted.step == said.step == 3 and counted.first_event == said.first_event
    assert counted.block_ids == said.block_ids
    assert "ref_count 1" in counted.message and "0 references" in counted.message
    assert said.message.endswith("(overridden: TouchesFirst.can_admit)")


def test_a_refusal_that_leaves_nothing_is_right() -> None:
    assert refused("labengine").watch.violations == []


# -- one key, two contents ---------------------------------------------------------------------------------------------


class FirstTokenOnly(as_parts("vllm").hash_chain):  # type: ignore[misc, name-defined]
    """A hash over a block's first token."""

    def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        return super().link(b"", token_ids[:1])  # type: ignore[no-any-return]


def test_a_key_of_two_contents_is_named_when_the_second_is_registered() -> None:
    setup = watched(8, edition=overriding("vllm", hash_chain=FirstTokenOnly))
    setup.add(1, 2, 3, 4)  # a hit leaves one token to compute: none of a prompt of one block
    setup.run()
    setup.add(1, 5, 6, 7)
    phases = setup.engine.phases()
    next(phases)
    phases.close()  # type: ignore[attr-defined]
    assert setup.watch.violations == [], "the step never happened"
    setup.run()
    [named] = setup.watch.violations
    assert isinstance(event := setup.first_event("named"), ev.BlockCached) and event.request_id == 1
    assert named.request_ids == (0, 1) and named.block_ids == (event.block_id,)
    assert "tokens 0 to 3 of request 0, and tokens 0 to 3 of request 1" in named.message
    assert named.message.endswith("differ in their tokens (FirstTokenOnly.link)")


@pytest.mark.parametrize(
    ("prompt", "keys", "said"),
    [
        ((9, 9, 9, 9, 5, 6, 7, 8), (), "they differ in the earlier tokens"),
        ((1, 2, 3, 4, 5, 6, 7, 8), (("lora", "b"),), "request 0 has no adapter, and request 1 adapter 'b'"),
    ],
)
def test_two_contents_of_one_key_are_told_apart(
    prompt: tuple[int, ...], keys: tuple[tuple[str, str], ...], said: str
) -> None:
    class OwnTokensOnly(as_parts("vllm").hash_chain):  # type: ignore[misc, name-defined]
        def root(self, extra_keys: object) -> bytes:
            return b""

        def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
            return super().link(b"", token_ids)  # type: ignore[no-any-return]

    setup = watched(8, edition=overriding("vllm", hash_chain=OwnTokensOnly))
    setup.add(1, 2, 3, 4, 5, 6, 7, 8)
    setup.add(*prompt, extra_keys=keys)
    setup.run()
    named = [v.message for v in setup.watch.violations if " names two contents" in v.message]
    assert any(said in message for message in named), named


def test_a_snapshot_shows_a_key_of_two_contents_without_an_oracle() -> None:
    for hash_chain, num_found in ((FirstTokenOnly, 1), (as_parts("vllm").hash_chain, 0)):
        parts = Parts(hash_chain=hash_chain)
        with Lab("simulated", num_blocks=8, block_size=4, edition="vllm", parts=parts, check=False) as lab:
            lab.generate([[1, 2, 3, 4], [1, 5, 6, 7]], max_tokens=1)
            found = lab.check()
            assert [violation.rule for violation in found] == ["named"] * num_found
            assert all(v.block_ids == (1, 2) for v in found)


# -- rollbacks ---------------------------------------------------------------------------------------------------------


def test_registrations_of_a_step_that_never_happened_are_taken_back() -> None:
    setup = watched(4, edition="vllm")
    setup.add(*X, *Y, 1, extra_keys=(("lora", "a"),))
    setup.run()
    other = setup.add(*range(500, 509), extra_keys=(("lora", "b"),))
    phases = setup.engine.phases()
    next(phases)
    assert setup.engine.requests[other].has_blocks
    phases.close()  # type: ignore[attr-defined]
    setup.engine.abort(other)
    setup.add(*X, *Y, 1, extra_keys=(("lora", "a"),))
    setup.run()
    assert setup.timeline.of_kind(ev.PrefixHit)[-1].num_tokens == 8  # type: ignore[attr-defined]
    assert setup.watch.violations == []


class NoAdapters(as_parts("vllm").hash_chain):  # type: ignore[misc, name-defined]
    """A hash over tokens alone."""

    def root(self, extra_keys: Any) -> bytes:
        return b""


def test_a_key_may_name_another_content_after_a_reset() -> None:
    """New weights, which the hash does not cover: upstream asks the caller for a reset (vLLM issue 9744)."""
    setup = watched(8, edition=overriding("vllm", hash_chain=NoAdapters))
    for weights in ("1", "2"):
        setup.add(*X, *Y, 1, extra_keys=(("weights", weights),))
        setup.run()
        assert setup.engine.reset_prefix_cache()
    assert setup.watch.violations == []


class KeepsItsKeys(BlockPool):
    """A reset forgets every other block."""

    def evict_cached(self, block_ids: Sequence[int], reason: EvictReason) -> None:
        super().evict_cached(block_ids[::2], reason)


def test_a_reset_that_leaves_blocks_to_be_hit_is_said_at_its_event() -> None:
    setup = watched(8, edition=overriding("labengine", block_pool=KeepsItsKeys))
    setup.add(*X, *Y, 1)
    setup.run()
    setup.engine.reset_prefix_cache()
    [found] = of_rule(setup, "said")
    assert found.block_ids == (1,) and found.message.endswith("(KeepsItsKeys.evict_cached)")
    assert isinstance(setup.first_event("said"), ev.PrefixCacheReset)


class BreaksOffOnce(HostStore):
    """Its first save is interrupted when all blocks are kept."""

    is_broken_off = False

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        if self.is_broken_off:
            return super().save_kv(saves, kv)
        self.is_broken_off = True
        for transfer in saves:
            self._save(transfer, kv)
        raise KeyboardInterrupt


def test_what_an_interrupted_save_has_kept_is_not_known() -> None:
    setup = watched(9, edition="vllm", connector=BreaksOffOnce())
    setup.add(*X, *Y, 1)
    with pytest.raises(KeyboardInterrupt):
        setup.steps(1)
    setup.run()
    setup.add(*Z, *Y, 1)
    setup.run()
    setup.engine.reset_prefix_cache()
    setup.add(*X, *Y, 2)
    setup.run()
    assert setup.timeline.of_kind(ev.ExternalHit)[-1].num_tokens == 8  # type: ignore[attr-defined]
    assert setup.watch.violations == []


@pytest.mark.parametrize(
    ("id", "kind"),
    [
        ("nano-vllm-71", ev.SlotsWritten),  # a write that put the claimed KV elsewhere
        ("nano-vllm-208", ev.BlockCached),  # a registration of what no step computes
        ("vllm-32255", ev.StepStarted),  # a load that no event reports
        ("vllm-45357", ev.SlotsWritten),  # a write of other KV
        ("pegaflow-450", ev.BlocksLoaded),  # a load of other KV
    ],
)
def test_the_event_that_broke_a_name(id: str, kind: type[ev.Event]) -> None:
    with bug(id).broken() as lab:
        assert lab.timeline is not None
        named = next(violation for violation in lab.violations if violation.rule == "named")
        assert named.first_event is not None
        assert type(lab.timeline.events(named.first_event, named.first_event + 1)[0]) is kind


def test_a_step_that_is_rolled_back_before_it_was_told_takes_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a Ctrl-C between the step's journal and its StepStarted: what the step before evicted stays evicted."""
    setup = watched(4, budget=8)
    setup.add(*X, *Y, 1, max_tokens=1)
    setup.run()
    setup.add(*range(500, 513), max_tokens=1)
    setup.run()
    monkeypatch.setattr(type(setup.engine.hooks), "emit", _interrupted(type(setup.engine.hooks).emit))
    setup.add(1)
    with pytest.raises(KeyboardInterrupt):
        setup.engine.step()
    monkeypatch.undo()
    setup.engine.abort(2)
    assert setup.engine.reset_prefix_cache() and setup.watch.violations == []


def _interrupted(emit: Any) -> Any:
    def interrupted(hooks: Any, event: ev.Event) -> None:
        if isinstance(event, ev.StepStarted):
            raise KeyboardInterrupt
        emit(hooks, event)

    return interrupted
