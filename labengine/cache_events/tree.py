"""The tree of prefixes that blocks form by naming the block before them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labengine.cache_events.contents import BlockContents, Content
from labengine.cache_events.schema import BlockHash

Key = tuple[BlockHash, int]
"""A content's: hash and block size."""


class PrefixTree:
    """BlockContents with those that follow each.

    order: every content once, none before the one that it follows. starts: those that follow none that is known.
    """

    def __init__(self, contents: BlockContents) -> None:
        self._following: dict[Key, list[Content]] = defaultdict(list)
        self.starts: list[Content] = []
        for content in contents:
            parent = contents.parent_of(content)
            if parent is None:
                self.starts.append(content)
            else:
                self._following[parent.key].append(content)
        self.order = [one for start in self.starts for one in self._from(start)]
        self.loops = self._cut_loops(contents)
        """BlockContents of which each follows itself, so that none is a beginning: no engine does that."""

    def following(self, content: Content) -> list[Content]:
        """Return the contents that follow one."""
        return self._following.get(content.key, [])

    def _from(self, start: Content) -> Iterator[Content]:
        waiting = [start]
        while waiting:
            content = waiting.pop()
            yield content
            waiting += self.following(content)

    def _cut_loops(self, contents: BlockContents) -> list[Content]:
        """Make a beginning of one content of each loop, and add what hangs on it to the order."""
        reached, cut = {content.key for content in self.order}, []
        for content in contents:
            if content.key in reached:
                continue
            parent = contents.parent_of(content)
            assert parent is not None
            cut.append(content)
            self._following[parent.key].remove(content)
            self.starts.append(content)
            self.order += (found := list(self._from(content)))
            reached.update(one.key for one in found)
        return cut
