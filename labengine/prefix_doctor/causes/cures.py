"""The change that mends a cause: of the traffic, or of the setting that it runs with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from labengine.config import ConfigError, EngineConfig
from labengine.prefix_doctor.causes.evictions import by_few
from labengine.prefix_doctor.causes.finding import Cure, Kind
from labengine.prefix_doctor.causes.fixed_order import in_fixed_order
from labengine.prefix_doctor.causes.groups import Group, HistoryGroup, TextGroup
from labengine.prefix_doctor.causes.kept_history import with_history_kept
from labengine.prefix_doctor.causes.ledger import Evidence, Ledger
from labengine.prefix_doctor.causes.moved_text import Template, with_text_moved
from labengine.prefix_doctor.causes.spread_out import one_first
from labengine.prefix_doctor.causes.words import VARYING
from labengine.prefix_doctor.play.curves import with_block_size
from labengine.prefix_doctor.play.figures import Figures
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic
from labengine.record.wording import counted

POOLS = (1.5, 2, 4, 8)
"""Larger pools to try, as multiples of the present one."""

ENOUGH = 0.9
"""The share of a finding's tokens that a change has to save; a stronger one is not tried then."""

MAX_TEMPLATES = 50


@dataclass(frozen=True)
class CureChange:
    """A change in words, and what it does to the traffic and to the setting; None if it leaves them."""

    words: str
    traffic: Callable[[Traffic], Traffic] | None = None
    setting: Callable[[Setting], Setting] | None = None

    def applied(self, traffic: Traffic, setting: Setting) -> tuple[Traffic, Setting]:
        """Return the changed traffic and setting."""
        return (
            traffic if self.traffic is None else self.traffic(traffic),
            setting if self.setting is None else self.setting(setting),
        )


def played_cure(
    evidence: Evidence,
    ledger: Ledger,
    traffic: Traffic,
    setting: Setting,
    before: Figures,
    play: Callable[[Traffic, Setting], Figures],
) -> Cure | None:
    """Play the changes that may mend a finding, and return the first that saves enough, or the best; None without one.

    before: the figures of the same traffic and setting.
    """
    best: Cure | None = None
    for change in changes_for(evidence, ledger, setting):
        try:
            cure = Cure(change.words, before, play(*change.applied(traffic, setting)))
        except ConfigError:  # such a setting is impossible
            continue
        if best is None or cure.num_saved > best.num_saved:
            best = cure
        if cure.num_saved >= ENOUGH * evidence.finding.num_lost:
            break
    return best if best is not None and best.num_saved > 0 else None


def changes_for(evidence: Evidence, ledger: Ledger, setting: Setting) -> Iterator[CureChange]:
    """Yield the changes that may mend a finding, the cheapest first."""
    kind, groups, config = evidence.finding.kind, evidence.groups, setting.config
    match kind:
        case "clock" | "id" | "counter" | "tenant" | "image" | "varying_text":
            yield from _move(kind, groups)
        case "edited_history":
            yield CureChange("leave the earlier messages of a conversation as they were", with_history_kept)
        case "truncated_history":
            group = sum(one.num_cut for one in groups if isinstance(one, HistoryGroup))
            mean = group // sum(one.num_prompts for one in groups)
            more = f"do not cut conversations: at first {counted(mean, 'token')} more in each of these prompts"
            yield CureChange(more, with_history_kept)
        case "salt":
            words = "use one cache salt for all who may know of each other's prompts (here: none at all)"
            yield CureChange(words, partial(_without_keys, is_salt=True))
        case "adapter":
            words = "an upper bound, not a remedy: if all requests used the same adapter"
            yield CureChange(words, partial(_without_keys, is_salt=False))
        case "short_prompt":
            yield from _smaller_blocks(ledger, config)
        case "evicted" | "preempted":
            yield from map(_larger_pool, POOLS)
        case "evicted_by_one":
            yield _own_engine(ledger, setting.num_replicas)
        case "other_replica":
            yield CureChange("send each prompt to the replica that caches most of it", setting=_by_prefix)
        case "state_boundary":
            yield from _more_states(config)
        case "window" if config.retention_interval is not None:
            words = "cache all blocks of the sliding windows (in vLLM: --prefix-cache-retention-interval None)"
            yield CureChange(words, setting=_dense)
        case "same_time":
            yield CureChange("send one of them first, and the others once it has been computed", one_first(setting))
        case "not_used":
            yield CureChange("let these requests read the cache", _reading)


# -- traffic -----------------------------------------------------------------------------------------------------------


def _move(kind: Kind, groups: Sequence[Group]) -> Iterator[CureChange]:
    templates = [Template.of(group) for group in groups if isinstance(group, TextGroup)][:MAX_TEMPLATES]
    templates = [one for one in templates if one.parts]
    has_history = any(isinstance(group, HistoryGroup) for group in groups)
    what = VARYING[kind].replace("a ", "the ", 1).replace("an ", "the ", 1)
    if templates:
        words = f"move {what} behind the text that is the same"
        if not has_history:
            yield CureChange(words, lambda traffic: with_text_moved(traffic, templates))
            return
        words += ", and leave it as it was in earlier messages"
        yield CureChange(words, lambda traffic: with_history_kept(with_text_moved(traffic, templates)))
    elif has_history:
        yield CureChange(f"leave {what} in a conversation's earlier text as it was", with_history_kept)
    else:
        yield CureChange("send these pieces of text in a fixed order, and what is new behind them", in_fixed_order)


def _changed(traffic: Traffic, change: Callable[[Prompt], Prompt]) -> Traffic:
    return replace(traffic, read=lambda: map(change, traffic))


def _without_keys(traffic: Traffic, is_salt: bool) -> Traffic:
    def change(prompt: Prompt) -> Prompt:
        keys = tuple(key for key in prompt.extra_keys if ("salt" in key[0]) != is_salt)
        return replace(prompt, extra_keys=keys)

    return _changed(traffic, change)


def _reading(traffic: Traffic) -> Traffic:
    return _changed(traffic, lambda prompt: replace(prompt, skips_cache=False))


# -- settings ----------------------------------------------------------------------------------------------------------


def _larger_pool(factor: float) -> CureChange:
    def change(setting: Setting) -> Setting:
        config = setting.config
        return replace(setting, config=replace(config, num_blocks=int(factor * config.num_blocks)))

    return CureChange(f"a pool of {factor:g} times the blocks", setting=change)


def _smaller_blocks(ledger: Ledger, config: EngineConfig) -> Iterator[CureChange]:
    """Yield the largest power of two that saves enough, if there is only one group of full attention."""
    if len(config.groups) != 1 or config.groups[0].kind != "full":
        return
    present = config.groups[0].block_size
    sizes = [2**power for power in range(present.bit_length() - 1, -1, -1) if 2**power < present]
    size = next((size for size in sizes if _saved_with(ledger, size) >= ENOUGH * ledger.short.num_lost), None)
    if size is not None:
        words = f"blocks of {counted(size, 'token')} instead of {present}"
        yield CureChange(words, setting=partial(_with, with_block_size, size))


def _saved_with(ledger: Ledger, size: int) -> int:
    """Return the tokens that prompts, each of which shares some and hits fewer, would hit in blocks of another size."""
    return sum(max(0, shared // size * size - hit) * number for (shared, hit), number in ledger.short.shares.items())


def _own_engine(ledger: Ledger, num_replicas: int) -> CureChange:
    """Return the change that serves the prompts which evict most on an engine of their own."""
    few = by_few(ledger.evictions, ledger.lengths, ledger.total.num_prompts)
    long = ledger.lengths.long if all(ledger.lengths[one] >= ledger.lengths.long for one in few) else None

    def apart(traffic: Traffic, first: int) -> Iterator[Prompt]:
        for number, prompt in enumerate(traffic):
            is_apart = number in few if long is None else len(prompt.token_ids) >= long
            yield replace(
                prompt, replica=first if is_apart else (number if prompt.replica is None else prompt.replica) % first
            )

    words = "serve the long prompts on another engine" if long else "serve these requests on another engine"
    return CureChange(
        words,
        lambda traffic: replace(traffic, read=lambda: apart(traffic, num_replicas)),
        lambda setting: replace(setting, num_replicas=num_replicas + 1, routing="recorded"),
    )


def _with(changed: Callable[[EngineConfig, int], EngineConfig], value: int, setting: Setting) -> Setting:
    return replace(setting, config=changed(setting.config, value))


def _by_prefix(setting: Setting) -> Setting:
    return replace(setting, routing="prefix")


def _dense(setting: Setting) -> Setting:
    return replace(setting, config=replace(setting.config, retention_interval=None))


def _more_states(config: EngineConfig) -> Iterator[CureChange]:
    """Yield the change that caches the state after each chunk, then the same with smaller and smaller chunks."""
    words = "cache the state after each chunk of a prompt"
    if config.retention_interval is not None:
        words += " (in vLLM: --prefix-cache-retention-interval None)"
        yield CureChange(words, setting=_dense)
    unit = config.scheduler_block_size
    smallest = -(-max(unit, config.max_num_seqs) // unit) * unit
    for budget in (4 * smallest, 2 * smallest, smallest):
        if budget < config.max_num_batched_tokens:
            smaller = f"{words}, and compute at most {counted(budget, 'token')} in a step"
            yield CureChange(smaller, setting=partial(_with, _of_chunks, budget))


def _of_chunks(config: EngineConfig, budget: int) -> EngineConfig:
    return replace(config, max_num_batched_tokens=budget, retention_interval=None)
