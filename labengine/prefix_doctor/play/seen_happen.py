"""A finding as a lab: the few prompts that show it, to be stepped."""

from __future__ import annotations

from labengine.config import TUNING, ConfigError
from labengine.lab import Lab
from labengine.prefix_doctor.causes.finding import Finding
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic

MAX_BLOCKS = 4096
"""Blocks of a lab that can be looked at."""


def lab_of(finding: Finding, traffic: Traffic, setting: Setting) -> Lab:
    """Return a lab with the prompts that show a finding, queued in order.

    Its pool is as small as the prompts allow where content has to be evicted, and otherwise holds all of them.
    """
    wanted = set(finding.shown)
    prompts = [prompt for number, prompt in enumerate(traffic) if number in wanted]
    if not prompts:
        raise ConfigError(f"no single prompts show the finding {finding.title!r}")
    config = setting.config
    needed = [_num_blocks(prompt, setting) for prompt in prompts]
    num_blocks = 1 + (max(needed) if finding.kind.startswith("evicted") else sum(needed))
    if num_blocks > MAX_BLOCKS:
        raise ConfigError(f"these prompts need {num_blocks:,} blocks, and a lab shows at most {MAX_BLOCKS:,}")
    one_by_one = finding.kind not in ("same_time", "preempted")
    lab = Lab(
        "simulated",
        num_blocks=min(num_blocks, config.num_blocks),
        groups=config.groups,
        edition=setting.parts.name,
        max_num_seqs=1 if one_by_one else config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        **{name: getattr(config, name) for name in TUNING},
    )
    for prompt in prompts:
        _add(lab, prompt)
    return lab


def _num_blocks(prompt: Prompt, setting: Setting) -> int:
    num_tokens = len(prompt.token_ids) + prompt.num_answer
    return sum(-(-num_tokens // group.block_size) for group in setting.config.groups)


def _add(lab: Lab, prompt: Prompt) -> None:
    keys = dict(prompt.extra_keys)
    salt = keys.pop("cache_salt", None)
    lab.add(
        token_ids=list(prompt.token_ids),
        cache_salt=salt,
        extra_keys=keys or None,
        priority=prompt.priority,
        max_tokens=max(1, prompt.num_answer),
        ignore_eos=True,
        skip_reading_prefix_cache=prompt.skips_cache,
        images={image.start: (image.identifier, image.length) for image in prompt.images} or None,
    )
