"""The tree of prefixes, in which each block names the block before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labengine.vllm.cache_events.cache import EventCache
from labengine.vllm.cache_events.contents import BlockContents, Content
from labengine.vllm.cache_events.holdings import Holding, Place


class PrefixTree:
    """The contents of a cache, each with the contents that follow it.

    order: every content once, after the one that it follows. starts: contents that follow no known one.
    loops: contents that follow themselves, so that none is a beginning; no engine does that.
    """

    def __init__(self, cache: EventCache) -> None:
        self._following: dict[Content, list[Content]] = {}
        self._held: dict[Content, dict[Place, Holding]] = {}
        self.starts: list[Content] = []
        for content in cache.contents:
            self._held[content] = cache.held(content)
            self._add(content, cache.contents.parent_of(content))
        self.order = [one for start in self.starts for one in self._from(start)]
        self.loops: list[Content] = []
        if len(self.order) < len(self._held):
            self._cut_loops(cache.contents)

    def following(self, content: Content) -> Sequence[Content]:
        """Return the contents that follow a content."""
        return self._following.get(content, ())

    def held(self, content: Content) -> dict[Place, Holding]:
        """Return the present and past places of a content."""
        return self._held[content]

    def _add(self, content: Content, parent: Content | None) -> None:
        if parent is None:
            self.starts.append(content)
        else:
            self._following.setdefault(parent, []).append(content)

    def _from(self, start: Content) -> Iterator[Content]:
        waiting = [start]
        while waiting:
            content = waiting.pop()
            yield content
            waiting += self.following(content)

    def _cut_loops(self, contents: BlockContents) -> None:
        """Make one content of each loop a beginning, and add the contents after it to the order."""
        reached = set(self.order)
        for content in contents:
            if content not in reached:
                first = _in_loop(content, contents)
                parent = contents.parent_of(first)
                assert parent is not None
                self._following[parent].remove(first)
                self.loops.append(first)
                self.starts.append(first)
                self.order += (found := list(self._from(first)))
                reached.update(one for one in found)


def _in_loop(content: Content, contents: BlockContents) -> Content:
    """Return a content that follows itself, found from one after it."""
    passed = set()
    while content not in passed:
        passed.add(content)
        parent = contents.parent_of(content)
        assert parent is not None
        content = parent
    return content
