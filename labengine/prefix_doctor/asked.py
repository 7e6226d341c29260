"""The setting that a user asks for, of which every part has a default."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike

from labengine.config import ConfigError, EngineConfig, GroupSpec, checked_int
from labengine.core.editions import edition
from labengine.prefix_doctor.play.clock import Clock
from labengine.prefix_doctor.play.model_config import ModelFacts, model_of
from labengine.prefix_doctor.play.setting import Routing, Setting

EDITION, BLOCK_SIZE, NUM_BLOCKS = "vllm", 16, 65_536
MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS = 256, 8192
"""vLLM's defaults for serving on a large GPU."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The asked settings; None for a default. model: a config.json, from which groups and capacity follow.

    num_blocks or gib say how large the pool is; gib needs a model.
    """

    num_blocks: int | None = None
    block_size: int | None = None
    model: str | PathLike[str] | None = None
    gib: float | None = None
    edition: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    num_replicas: int | None = None
    routing: Routing | None = None

    @property
    def is_empty(self) -> bool:
        """True if nothing is asked, so that a recording is examined as it is."""
        return self == Asked()

    def facts(self) -> ModelFacts | None:
        """Return what the model's config.json tells; None without one."""
        return None if self.model is None else model_of(self.model, block_size=self.block_size)

    def setting(self, clock: Clock | None, num_recorded: int) -> Setting:
        """Return the setting. num_recorded: replicas that the traffic names."""
        facts = self.facts()
        if self.gib is not None and (facts is None or self.num_blocks is not None):
            raise ConfigError("gib needs a model's config.json, and replaces the number of blocks")
        groups = (GroupSpec(self.block_size or BLOCK_SIZE),) if facts is None else facts.groups
        num_blocks = NUM_BLOCKS if self.num_blocks is None else checked_int("num_blocks", self.num_blocks, 2)
        if facts is not None and self.gib is not None:
            num_blocks = facts.blocks_in(self.gib)
        config = EngineConfig(
            num_blocks=num_blocks,
            groups=groups,
            max_num_seqs=self.max_num_seqs or MAX_NUM_SEQS,
            max_num_batched_tokens=self.max_num_batched_tokens or MAX_NUM_BATCHED_TOKENS,
        )
        num_replicas = checked_int("num_replicas", self.num_replicas or max(1, num_recorded), 1, 1024)
        routing = self.routing or ("recorded" if num_recorded > 1 else "round_robin")
        return Setting(config, edition(self.edition or EDITION), clock, num_replicas, routing)
