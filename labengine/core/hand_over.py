"""Handing a request over to another scheduler with its KV: prefill on one lab, decode on another."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.config import ConfigError
from labengine.core.collaborator import Collaborator
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request, RequestStatus
from labengine.events import PrefixHit, RequestHandedOver, RequestReceived, RequestReleased, Transfer
from labengine.record.wording import counted, listed, request_name


class HandOver(Collaborator):
    """Gives running requests away, and accepts requests whose first tokens already have KV.

    Also known as disaggregated prefill (Splitwise, ISCA 2024; DistServe, OSDI 2024).
    """

    # -- the giving side -----------------------------------------------------------------------------------------------

    def refuse_to_give(self, request: Request) -> None:
        """Raise ConfigError for a request that has no KV to give or that others depend on."""
        name = request_name(request.request_id)
        if request.status is RequestStatus.FINISHED:
            raise ConfigError(f"{name} has finished and holds no blocks: add its tokens to the other lab as a prompt")
        if request.sampling.beams > 1:
            raise ConfigError(f"{name} is a beam and cannot be handed over: its search belongs to one lab")
        if request not in self.scheduler.running or not request.num_computed_tokens:
            raise ConfigError(f"{name} is waiting and has no blocks to hand over: take steps until it runs")
        if waiting := self.scheduler.siblings.of(request):
            names = listed(request_name(sibling.request_id) for sibling in waiting)
            verb = "waits" if len(waiting) == 1 else "wait"
            raise ConfigError(f"{names} {verb} for {name}'s tokens: hand {name} over once its prompt has been computed")

    def blocks_to_read(self, request: Request) -> list[list[int]]:
        """Return, per group, the blocks with the KV or state of a request's computed tokens, in table order.

        They are the blocks that a fork would share: of the states after drafts, only the accepted one.
        """
        return [group.shared_blocks(request, request.num_computed_tokens) for group in self.manager.groups]

    def give(self, request: Request, lab: str, other_request_id: int) -> None:
        """End a request whose KV was copied to another lab.

        Its blocks are freed only after the copy: before, another request could get them and overwrite what is still
        being read.
        """
        num_tokens = request.num_computed_tokens
        self.scheduler._remove_running(request)
        self.scheduler.end(request, "moved", holds_blocks=True)
        if RequestHandedOver in self._hooks:
            self._hooks.emit(RequestHandedOver(request.request_id, lab, other_request_id, num_tokens))
        self.manager.free(request, "finished")
        if RequestReleased in self._hooks:
            self._hooks.emit(RequestReleased(request.request_id))

    # -- the receiving side --------------------------------------------------------------------------------------------

    def receive(self, request: Request, num_tokens: int) -> list[Transfer]:
        """Accept a request whose first num_tokens tokens have KV elsewhere, and give it blocks for them.

        Blocks in the prefix cache are shared. Returns the others, to be filled before `start_received`. Raises
        ConfigError if too few blocks are free.
        """
        self.manager.begin_step()  # blocks written in the step before can be read now
        hit = self.manager.find_prefix(request)
        if hit.num_tokens < num_tokens:
            hit = self._whole_blocks(hit)
        num_moved = max(0, num_tokens - hit.num_tokens)
        self._refuse_without_room(request, hit, num_moved)
        self.scheduler.accept(request)
        self.manager.note_shared_prefix(request, hit)
        if PrefixHit in self._hooks:
            is_skipped = request.sampling.skip_reading_prefix_cache and not hit.num_tokens
            self._hooks.emit(PrefixHit(request.request_id, hit.num_tokens, hit.block_ids, is_skipped))
        self._set(request, "num_computed_tokens", hit.num_tokens)
        self.manager.allocate_computed(request, hit, num_moved)
        return self.blocks_to_fill(request, hit, hit.num_tokens + num_moved)

    def _whole_blocks(self, hit: Hit) -> Hit:
        """Return a hit cut to where every group has full blocks, because blocks are filled completely or not at all.

        A partly hit block would mix both: its state would be after fewer tokens than were moved.
        """
        num_tokens = hit.num_tokens // self.config.scheduler_block_size * self.config.scheduler_block_size
        ends = (num_tokens // group.block_size for group in self.manager.groups)
        block_ids = tuple(found[:end] for found, end in zip(hit.block_ids, ends, strict=True))
        return Hit(num_tokens, block_ids, hit.shared_prefix_boundary)

    def _refuse_without_room(self, request: Request, hit: Hit, num_moved: int) -> None:
        num_tokens = hit.num_tokens + num_moved
        num_blocks = [-(-num_tokens // group.block_size) for group in self.manager.groups]
        if not self.manager.has_room(hit, num_moved, num_blocks, 0):
            num_free = self.manager.pool.num_free
            raise ConfigError(
                f"the other lab has too few free blocks for {counted(num_tokens, 'token')} ({num_free} "
                f"{'is' if num_free == 1 else 'are'} free): step it until some of its requests have finished"
            )

    def blocks_to_fill(self, request: Request, hit: Hit, num_tokens: int) -> list[Transfer]:
        """Return the table entries after a hit that hold the KV or state of the first num_tokens tokens.

        The last one is included even if partly filled, because the next token attends to every entry.
        """
        null_block = self.manager.pool.null_block
        return [
            (group.index, index, block_id, self._hash_of(request, group.index, index, num_tokens))
            for group, found in zip(self.manager.groups, hit.block_ids, strict=True)
            for index, block_id in enumerate(request.block_tables[group.index])
            if index >= len(found) and block_id != null_block
        ]

    def _hash_of(self, request: Request, group: int, index: int, num_tokens: int) -> bytes:
        """Return the hash of a full block; b"" for a partly filled one."""
        owner = self.manager.groups[group]
        is_full = (index + 1) * owner.block_size <= num_tokens
        return owner.block_hashes(request, index, index + 1)[0] if is_full else b""

    def start_received(
        self, request: Request, lab: str, other_request_id: int, num_tokens: int, filled: Sequence[Transfer]
    ) -> None:
        """Count a request's first num_tokens tokens as computed, now that their blocks are filled, and queue it first.

        It already holds blocks, like a request whose load from an external tier has ended, so it should run soon.
        """
        if RequestReceived in self._hooks:
            moved = RequestReceived(request.request_id, tuple(filled), lab, other_request_id, num_tokens)
            self._hooks.emit(moved)
        self.scheduler.book_computed(request, max(num_tokens, request.num_computed_tokens))
        self.scheduler.requeue(request)
