"""Events of computing: KV, states, tokens and guesses."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.events.event import Event, InVllm, methods
from labengine.events.fields import BlockId, BlockOrNull, GroupNumber, RequestId, TokenId, TokenIds


@dataclass(frozen=True, slots=True)
class SlotsWritten(Event):
    """The forward pass wrote KV for tokens [start, ...) of a request, run by run."""

    request_id: RequestId
    group: GroupNumber
    start: int
    runs: tuple[tuple[BlockOrNull, int, int], ...]
    """(block_id, offset, length) per block touched."""

    topic = "model"
    phase = "forward"
    decided_by = {
        "": ("KVCacheManager.slot_runs", "KVCacheGroup.slots", "BlockPool.null_block", "Engine._emit_written"),
    }


@dataclass(frozen=True, slots=True)
class StateAdvanced(Event):
    """The forward pass overwrote a request's state after `start` tokens with the one after `end` tokens, in one block.

    With start 0 it began with the zero state, regardless of the block's content. A state inside a chunk is left in a
    separate block.
    """

    request_id: RequestId
    group: GroupNumber
    block_id: BlockId
    start: int
    end: int

    topic = "model"
    phase = "forward"
    decided_by = {
        "": ("KVCacheGroup.slots", "KVCacheManager.slot_runs", "KVCacheManager.checkpoint", "Engine._emit_written")
    }


@dataclass(frozen=True, slots=True)
class ForwardRan(Event):
    """The model computed all scheduled tokens of the step in one batch."""

    num_requests: int
    num_tokens: int

    topic = "model"
    phase = "forward"
    decided_by = {"": ("Scheduler.schedule", "Engine._forward")}


@dataclass(frozen=True, slots=True)
class TokensComputed(Event):
    """A request's KV now holds its first num_computed_tokens tokens."""

    request_id: RequestId
    num_computed_tokens: int
    """0 after a load that failed from its first block on: a table of only null entries is then empty again."""

    topic = "request"
    decided_by = {"": ("Scheduler.book_computed", "Drafts.book_accepted", "Scheduler.count_computed")}
    in_vllm = {
        "": InVllm("scheduler", "update_from_output", "The tokens of a step count as computed when its output arrives.")
    }


@dataclass(frozen=True, slots=True)
class TokenSampled(Event):
    """A token was appended to a request; its KV will be written by a later step."""

    request_id: RequestId
    token_id: TokenId
    position: int

    topic = "model"
    phase = "sample"
    decided_by = {
        "": methods(
            "Scheduler.update Drafts.judge Drafts.num_accepted Scheduler.book Scheduler.fill_in",
            "Scheduler.plan Scheduler.append_token",
        ),
    }
    in_vllm = {"": InVllm("scheduler", "_update_request_with_output", "The step's output is appended to the request.")}


@dataclass(frozen=True, slots=True)
class TokensDrafted(Event):
    """A proposer guessed a request's next tokens; the next step that schedules the request computes and judges them.

    No tokens: earlier guesses were dropped.
    """

    request_id: RequestId
    token_ids: TokenIds

    topic = "model"
    decided_by = {"": ("Drafts.num_wanted", "Engine._draft", "Drafts.keep")}
    in_vllm = {"": InVllm("scheduler", "update_draft_token_ids", "Guesses are for requests that decode alone.")}


@dataclass(frozen=True, slots=True)
class DraftsJudged(Event):
    """The model's own tokens were compared with the guesses that the step computed; equal ones are kept.

    A TokenSampled follows for each accepted guess, and one for the token after them, unless the request ends earlier.
    KV of rejected guesses stays in the blocks as garbage, which the next step overwrites.
    """

    request_id: RequestId
    num_accepted: int
    num_rejected: int

    topic = "model"
    phase = "sample"
    decided_by = {"": ("Drafts.num_accepted", "Scheduler.update", "Drafts.judge")}
    in_vllm = {"": InVllm("scheduler", "update_from_output", "Rejected guesses no longer count as computed.")}
