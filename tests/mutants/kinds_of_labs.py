"""Labs with forks, beams, drafts, states, priorities and images, and random requests for them.

labengine is imported inside the functions: a mutant is installed before.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

NUM_DRAFTS = 3


def lab_of_kinds(seed: int) -> Any:
    """Return a default lab with a small pool; what else it has depends on the seed."""
    from labengine import FixedDrafts, GroupSpec, Lab
    from labengine.engine.simulated import default_next_token

    has_states, has_drafts = seed % 2 == 0, seed % 3 != 0
    groups = [GroupSpec(4)]
    if has_states:
        groups.append(GroupSpec((2, 4, 8, 4)[seed // 2 % 4], "state"))
    elif seed % 4 == 1:
        groups.append(GroupSpec(4, "sliding_window", 8))
    guesses = tuple(default_next_token(0, position) if position % 3 else 1 for position in range(80))
    return Lab(
        "simulated",
        num_blocks=(10 + 4 * has_drafts * has_states) * len(groups) + seed % 3,
        groups=groups,
        external="host" if seed % 5 == 1 and not has_states else None,
        max_num_batched_tokens=24 if seed % 3 else 7,
        policy="priority" if seed % 4 < 2 else "fcfs",
        speculation=FixedDrafts(guesses, NUM_DRAFTS) if has_drafts else None,
    )


def random_act_of_kinds(lab: Any, rng: Random) -> None:
    """Add a request, several answers, a search or a branch: most of them go on as the guesses say."""
    from labengine.config import ConfigError

    prompt = [position * 104729 % 50021 for position in range(rng.choice((3, 4, 6, 8, 9, 13)))]
    asked: dict[str, Any] = {"max_tokens": rng.choice((1, 4, 9)), "priority": rng.choice((0, 0, 1, -1))}
    if rng.random() < 0.3:
        name = rng.choice("abc")
        asked["images"] = {rng.choice((0, 1, 3)): (name, 2 if name == "b" else 1)}
    chance = rng.random()
    with suppress(ConfigError, KeyError):
        if chance < 0.2:
            lab.branch(rng.choice(list(lab.snapshot().requests) or [0]), seed=rng.choice((0, None)))
        elif chance < 0.4:
            lab.add(token_ids=prompt, beams=3, ignore_eos=True, **asked)
        else:
            lab.add(token_ids=prompt, n=rng.choice((None, 2, 3)), seed=0, ignore_eos=True, **asked)
