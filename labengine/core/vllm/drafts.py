"""The number of drafts that vLLM's scheduler (0.32) gives a request, and the settings that it cannot handle."""

from __future__ import annotations

from labengine.config import ConfigError, EngineConfig
from labengine.core.drafts import Drafts
from labengine.core.request import Request, RequestStatus


class VllmDrafts(Drafts):
    """Drafts that take blocks like any token, and preempt for them.

    A block that they fill is registered when the next step allocates, so never if the request ends before.
    """

    @property
    def num_inputs(self) -> int:  # type: ignore[override]
        """Tokens of the budget that a draft model takes per request besides the request's own."""
        return 1 if self.config.drafter == "draft_model" else 0

    def num_wanted(self, request: Request) -> int:
        """Return how many drafts a decoding request gets: all, even if max_tokens cuts their yield."""
        is_decoding = request.status is RequestStatus.RUNNING and not request.is_prefilling
        return self.config.num_drafts if is_decoding else 0

    def num_affordable(self, request: Request) -> int:
        """Return all drafts: other requests are preempted for their blocks."""
        return len(request.drafts)

    def book_accepted(self, request: Request, num_tokens: int) -> None:
        """Note that the first num_tokens tokens have KV. The next step's allocation registers their blocks."""
        self.scheduler.count_computed(request, num_tokens)


def num_read_ahead(config: EngineConfig) -> int:
    """Return how many tokens after a chunk its drafter reads: each module of MTP one more than the one before it."""
    return config.num_drafts if config.drafter == "mtp" else 0


def refuse_failing(config: EngineConfig) -> None:
    """Raise ConfigError for draft settings with which vLLM fails, or whose effects are not modelled."""
    if 0 < config.long_prefill_token_threshold <= config.num_drafts:
        raise ConfigError(
            f"long_prefill_token_threshold={config.long_prefill_token_threshold} is less than the "
            f"{1 + config.num_drafts} tokens of a padded decode, so vLLM 0.32 would fail an assertion: use a "
            "larger one, or edition 'labengine'"
        )
    if num_read_ahead(config) > 1 and any(group.kind == "state" for group in config.groups):
        raise ConfigError(
            "several MTP modules together with state groups: with a small budget a request may wait forever in vLLM "
            "0.32, which ends a chunk first at a state's block and then before the tokens that the modules read. "
            "Use drafter 'eagle', or edition 'labengine'"
        )
    if config.num_drafts >= config.hash_block_size and any(
        group.checkpoint_alignment is not None for group in config.groups
    ):
        raise ConfigError(
            f"num_drafts={config.num_drafts} with links of {config.hash_block_size} tokens in the hash chain: "
            "where layers can leave a state inside a chunk, vLLM 0.32 keeps a block for a state after drafts that "
            "fill a link, and fails an assertion if they are not tokens of the request yet. Use fewer drafts, "
            "larger blocks, or edition 'labengine'"
        )
    largest = max((group.block_size for group in config.groups if group.kind == "state"), default=0)
    if config.num_drafts and config.drafter == "draft_model" and largest == config.max_num_batched_tokens:
        raise ConfigError(
            f"max_num_batched_tokens={largest} is one block of states, and the draft model takes one of its tokens: "
            "vLLM 0.32 waits forever for a chunk of that length. Allow one more token, or use edition 'labengine'"
        )
    if config.drafter == "mtp" and config.num_drafts > config.scheduler_block_size:
        raise ConfigError(
            f"num_drafts={config.num_drafts}: the MTP modules read that many tokens ahead, but a hit drops only "
            f"{config.scheduler_block_size} tokens, which must include them: use larger blocks or fewer drafts"
        )
