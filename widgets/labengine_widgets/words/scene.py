"""The state that sentences describe: the fold, and the contents, owners and lost blocks that it does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from labengine import events as ev
from labengine.record.fold import Fold
from labengine.record.fold_state import Key
from labengine.record.timeline import Timeline
from labengine.record.wording import counted
from labengine_widgets.words.filling import Filling, Owners
from labengine_widgets.words.mentions import Mention, Sentence
from labengine_widgets.words.names import ContentIndex, content_name
from labengine_widgets.words.tier import KnownTier, kept_contents


class Score(NamedTuple):
    """used: blocks held by requests; peak: the most in this step; findable: map entries; lost: alive, hashed, unmapped.

    evictable: blocks of the prefix tree that no lock protects.
    """

    used: int
    peak: int
    findable: int
    lost: int
    evictable: int

    @property
    def used_blocks(self) -> str:
        """The used blocks in words: "21 blocks used, 12 evictable"."""
        return f"{counted(self.used, 'block')} used{f', {self.evictable} evictable' if self.evictable else ''}"


class Scene:
    """The state after an event: apply events, then read contents and score.

    Costs grow with what changed, not with the pool.
    """

    def __init__(
        self,
        state: Fold,
        token_text: Callable[[int], str] = str,
        contents: ContentIndex | None = None,
        tier: Iterable[Key] = (),
    ) -> None:
        self.fold = state
        self.tier = KnownTier(tier)
        self.taken_from: dict[int, Literal["head", "behind", "outside"]] = {}
        """Where in the free queue each block was when it was allocated: at its head, after the head, or not in it."""
        self._token_text = token_text
        self._texts: dict[int, str] = {}
        self._take_stock(contents or ContentIndex())

    @classmethod
    def at(
        cls,
        timeline: Timeline,
        moment: int,
        token_text: Callable[[int], str] = str,
        contents: ContentIndex | None = None,
    ) -> Scene:
        """Return the scene at a moment of a recording."""
        return cls(timeline.state(moment), token_text, contents, kept_contents(timeline, moment))

    def _take_stock(self, contents: ContentIndex) -> None:
        self.peak = self.num_used
        self.owners = Owners(self.fold)
        self.filling = Filling(self.fold, self.owners, contents)
        self.lost = {block_id for block_id in range(self.num_blocks) if self.fold.is_lost(block_id)}

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return len(self.fold.ref_counts)

    @property
    def num_used(self) -> int:
        """Blocks held by at least one request."""
        return self.fold.num_used_blocks

    @property
    def score(self) -> Score:
        """The numbers of the state."""
        findable, evictable = len(self.fold.prefix_map), self.fold.tree.num_evictable
        return Score(self.num_used, self.peak, findable, len(self.lost), evictable)

    def apply(self, event: ev.Event) -> None:
        """Apply one event. EngineStarted starts over; for a StepRolledBack the caller loads the state."""
        if isinstance(event, ev.BlockAllocated):
            self.taken_from[event.block_id] = self._place_of(event.block_id)
        self.fold.apply(event)
        try:
            match event:
                case ev.EngineStarted():
                    self._take_stock(ContentIndex())
                case ev.StepStarted():
                    self.peak = self.num_used
                case ev.BlocksSaved() | ev.BlocksLoaded() | ev.TierChanged():
                    self.tier.note(event)
            self.filling.note(event)
        except LookupError:  # an impossible event, from a faulty part: its possible changes are noted
            if not self.fold.num_impossible:
                raise
        self.peak = max(self.peak, self.num_used)

    def _place_of(self, block_id: int) -> Literal["head", "behind", "outside"]:
        queue = self.fold.free_queue
        if block_id not in queue:
            return "outside"
        return "head" if block_id == next(iter(queue)) else "behind"

    def is_block(self, block_id: int) -> bool:
        """Return False for an id that no block has: faulty parts put such ids into tables."""
        return 0 <= block_id < self.num_blocks

    def is_in_tree(self, block_id: int) -> bool:
        """Return True if the prefix tree has the block. In a recording with a tree, all pins are the tree's."""
        return bool(self.fold.tree.nodes) and block_id in self.fold.pins

    def update(self) -> None:
        """Update owners and lost blocks by the changes since the last call."""
        changes = self.fold.take_changes()
        entries: dict[int, set[int]] = {}
        for request_id, block_id in changes.entries:
            entries.setdefault(request_id, set()).add(block_id)
        for request_id, block_ids in entries.items():
            self.owners.update(request_id, block_ids)
        for block_id in filter(self.is_block, changes.blocks):
            self._update_lost(block_id)

    def letter(self, block_id: int) -> Sentence:
        """Return the letter of a block's content for a sentence."""
        return Sentence(Mention("content", block_id, content_name(max(0, self.filling.content(block_id)))))

    def token_text(self, token_id: int) -> str:
        """Return a token's text as the tokenizer gives it: untrusted."""
        if token_id not in self._texts:
            self._texts[token_id] = self._token_text(token_id)
        return self._texts[token_id]

    def _update_lost(self, block_id: int) -> None:
        (self.lost.add if self.fold.is_lost(block_id) else self.lost.discard)(block_id)
