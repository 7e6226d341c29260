"""One node of the prefix tree: a run of cached blocks that all requests through it share."""

from __future__ import annotations

from dataclasses import dataclass, field

from labengine.core.request import ExtraKeys

ChildKey = tuple[ExtraKeys, tuple[object, ...]]
"""(extra keys of the request, tokens of a node's first block): leads from a node to a child."""


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """Consecutive blocks whose KV depends on the blocks of all nodes above. It has at least one, except the root."""

    node_id: int
    parent: Node | None
    extra_keys: ExtraKeys
    first_index: int
    """Number of blocks before the node's first one."""
    block_ids: list[int]
    links: list[tuple[object, ...]]
    """Per block, its tokens followed by its own keys, if any."""
    num_locks: int = 0
    """Requests that hold this node or one below it."""
    touched: int = 0
    """Place in the order of recency. A node that was split shares it with its upper half, which counts as older."""
    children: dict[ChildKey, Node] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"node {self.node_id}"

    @property
    def end(self) -> int:
        """Number of blocks up to the node's last one."""
        return self.first_index + len(self.block_ids)

    @property
    def key(self) -> ChildKey:
        """The key under which the parent finds this node."""
        return self.extra_keys, self.links[0]

    @property
    def age(self) -> tuple[int, int]:
        """Sort key of recency, the oldest first."""
        return self.touched, self.first_index

    def path(self) -> list[Node]:
        """Return the nodes from the root's child down to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def blocks_to_here(self) -> list[int]:
        """Return the blocks of the whole prefix that ends with this node."""
        return [block_id for node in self.path() for block_id in node.block_ids]
