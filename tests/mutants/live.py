"""What the live checks of a default lab see of each mutant, one line of JSON each; all mutants unless some are named.

    PYTHONPATH=tests:tests/support python -m mutants.live [--labs N] [NAME ...]

Every mutant has its own process, forked from one that has imported all but labengine.
"""

from __future__ import annotations

import argparse
import json
import resource
import warnings
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from ctrl_c import press_ctrl_c, python_handles_sigint
from mutants.kinds_of_labs import lab_of_kinds, random_act_of_kinds
from mutants.patched import in_a_fork
from mutants.table import MUTANTS, tree

NUM_LABS = 96
"""Every second one with forks, beams, drafts, states, priorities or images."""
NUM_ACTS = 40
TREE = {mutant.name for mutant in tree.MUTANTS}


def main() -> None:
    """One line per mutant."""
    import numpy  # noqa: F401 - imported once, for all that are forked
    import torch  # noqa: F401

    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--labs", type=int, default=NUM_LABS)
    asked = parser.parse_args()
    known = {mutant.name: mutant for mutant in MUTANTS}
    with python_handles_sigint():
        for name in asked.names or known:
            said = in_a_fork(known.get(name), partial(_try, asked.labs, is_of_tree=name in TREE))
            print(json.dumps({"name": name, **({"died": True} if said is None else json.loads(said))}), flush=True)


def _try(num_labs: int, *, is_of_tree: bool) -> str:
    warnings.simplefilter("ignore")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen: dict[str, Any] = {"rules": [], "errors": [], "first": None, "without_first_event": 0}
    for seed in range(num_labs):
        if seen["rules"] or seen["errors"]:
            break
        _work(seed, seen, has_tree=is_of_tree or seed % 8 == 2)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return json.dumps({"megabytes": round(grown), **seen})


def _work(seed: int, seen: dict[str, Any], *, has_tree: bool) -> None:
    """A short random session: prompts that share prefixes, aborts, resets, interrupts, steps that are broken off."""
    rng, has_kinds = Random(seed), seed % 2 == 1 and not has_tree
    lab = _lab_of_tree(seed) if has_tree else lab_of_kinds(seed // 2) if has_kinds else _lab(seed // 2)
    adds, steps = [random_act_of_kinds if has_kinds else add_request] * 3, [take_step] * 3
    acts = (*adds, *steps, abort_request, break_step_off, interrupt_step, drain_and_reset)
    for _ in range(NUM_ACTS):
        try:
            rng.choice(acts)(lab, rng)
        except Exception as error:
            seen["errors"].append(f"{type(error).__name__}: {error}"[:200])
        if lab.violations or seen["errors"]:
            break
    with suppress(Exception):
        lab.check()
    seen["rules"] = sorted({*seen["rules"], *(violation.rule for violation in lab.violations)})
    seen["without_first_event"] += sum(violation.first_event is None for violation in lab.violations)
    if lab.violations and seen["first"] is None:
        seen["first"] = lab.violations[0].message


def _lab(seed: int) -> Any:
    """A default lab with a small pool: one group or two, with and without a tier."""
    from labengine import GroupSpec, Lab

    is_hybrid, has_tier = seed % 2 == 0, seed % 4 in (1, 2)
    groups = [GroupSpec(4), GroupSpec(4, "sliding_window", 8)] if is_hybrid else [GroupSpec(4)]
    return Lab(
        "simulated",
        num_blocks=9 * len(groups) + seed % 3,
        groups=groups,
        external="host" if has_tier else None,
        max_num_batched_tokens=24,
        retention_interval=0 if is_hybrid and seed % 3 == 0 else None,
    )


def _lab_of_tree(seed: int) -> Any:
    """A lab whose small pool keeps a prefix tree; every third one evicts leaves in part."""
    from check.random_operations import SPARING
    from labengine import Lab
    from labengine.core.editions import LABENGINE_RADIX

    num_tokens = 24 if seed % 3 else 7
    parts = LABENGINE_RADIX if seed % 3 == 1 else SPARING["mini-sglang+142"]
    return Lab("simulated", num_blocks=9 + seed % 3, block_size=4, parts=parts, max_num_batched_tokens=num_tokens)


def add_request(lab: Any, rng: Random) -> None:
    from labengine.config import ConfigError

    length, start = rng.choice((3, 4, 5, 8, 9, 12, 13, 16, 17, 21, 29, 33)), rng.choice((0, 0, 0, 100, 200))
    prompt = [start + i for i in range(length)]
    if rng.random() < 0.2:
        prompt = prompt[: length // 2] + [rng.randint(0, 2) for _ in range(length - length // 2)]
    with suppress(ConfigError):
        lab.add(
            token_ids=prompt, max_tokens=rng.choice((1, 1, 2, 5, 9)), cache_salt=rng.choice((None, None, None, "s"))
        )


def take_step(lab: Any, rng: Random) -> None:
    lab.step()


def abort_request(lab: Any, rng: Random) -> None:
    if requests := list(lab.snapshot().requests):
        lab.abort(rng.choice(requests))


def break_step_off(lab: Any, rng: Random) -> None:
    """A step is rolled back from the middle; at times the waiting requests are then aborted."""
    from labengine.scripts import break_off

    break_off(lab, rng.choice(("schedule", "forward", "sample")))
    if rng.random() < 0.5:
        for request_id, request in lab.snapshot().requests.items():
            if request.status == "waiting":
                lab.abort(request_id)


def interrupt_step(lab: Any, rng: Random) -> None:
    """Ctrl-C while a token is booked: the complete step is rolled back from its end."""
    from labengine.events import TokenSampled

    listener = lab.hooks.subscribe(press_ctrl_c, TokenSampled)
    with suppress(KeyboardInterrupt):
        lab.step()
    listener.close()


def drain_and_reset(lab: Any, rng: Random) -> None:
    """All requests end, and the pool forgets: what comes again comes from the tier, where there is one."""
    lab.run()
    lab.reset_prefix_cache()


if __name__ == "__main__":
    main()
