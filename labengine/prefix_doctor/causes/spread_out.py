"""Traffic in which prompts with the same beginning do not come together: one comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import heappop, heappush

from labengine.prefix_doctor.causes.content import TOKEN, packed
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic

MAX_BEGINNINGS = 10_000


def one_first(setting: Setting) -> Callable[[Traffic], Traffic]:
    """Return the change that delays prompts until an earlier one with the same first block has been computed.

    Prompts with an arrival wait for as long as the earlier one's prefill takes; without one, until as many others have
    come as run at once.
    """
    return lambda traffic: replace(traffic, read=lambda: _read(traffic, setting))


def _read(traffic: Traffic, setting: Setting) -> Iterator[Prompt]:
    size = max(group.block_size for group in setting.config.groups)
    due: dict[bytes, float] = {}
    """When the first prompt with these tokens has been computed."""
    delayed: list[tuple[float, int, Prompt]] = []
    for number, prompt in enumerate(traffic):
        now = float(number) if prompt.arrival is None else prompt.arrival
        while delayed and delayed[0][0] <= now:
            yield heappop(delayed)[2]
        begins = packed(prompt.token_ids[:size])
        ready = due.get(begins)
        if ready is None and len(begins) == TOKEN * size:
            due[begins] = now + _wait(prompt, setting)
            if len(due) > MAX_BEGINNINGS:
                due.pop(next(iter(due)))
        if ready is not None and ready > now:
            late = prompt if prompt.arrival is None else replace(prompt, arrival=ready)
            heappush(delayed, (ready, number, late))
        else:
            yield prompt
    while delayed:
        yield heappop(delayed)[2]


def _wait(prompt: Prompt, setting: Setting) -> float:
    """Return the seconds, or steps without a clock, of a prompt's prefill; without an arrival, a number of prompts."""
    if prompt.arrival is None:
        return float(setting.config.max_num_seqs)
    num_tokens, config = len(prompt.token_ids), setting.config
    chunk = min(config.long_prefill_token_threshold or num_tokens, config.max_num_batched_tokens, num_tokens)
    num_steps = -(-num_tokens // chunk) + 1
    if setting.clock is None:
        return float(num_steps)
    return num_steps * setting.clock.duration(chunk, num_tokens * num_tokens // 2, num_tokens)
