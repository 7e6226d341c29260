"""The tree of prefixes that blocks form by naming the block before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labengine.vllm.cache_events.cache import EventCache
from labengine.vllm.cache_events.contents import BlockContents, Content
from labengine.vllm.cache_events.holdings import Holding, Place


class PrefixTree:
    """The contents of a cache, each with those that follow it.

    order: every content once, none before the one that it follows. starts: those that follow none that is known.
    loops: contents of which each follows itself, so that none is a beginning; no engine does that.
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
        """Return the contents that follow one."""
        return self._following.get(content, ())

    def held(self, content: Content) -> dict[Place, Holding]:
        """Return where a content is, or was."""
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
        """Make a beginning of one content of each loop, and add what hangs on it to the order."""
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
    """Return a content that follows itself, from one that hangs on it."""
    passed = set()
    while content not in passed:
        passed.add(content)
        parent = contents.parent_of(content)
        assert parent is not None
        content = parent
    return content
