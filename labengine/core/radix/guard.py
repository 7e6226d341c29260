"""Checks of overrides' answers for the prefix tree: what cannot be refused later, because it would corrupt or loop."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from labengine.config import is_single_int, shown
from labengine.core.guard import Checks, name_of
from labengine.core.radix.node import Node
from labengine.core.request import Request


def _check_find(tree: Any, found: Any, request: Request, num_blocks: int) -> None:
    """Refuse anything but a path from the root, and a length that ends in its last node, within the walk's limit."""
    is_pair = isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], list) and is_single_int(found[1])
    if is_pair and all(_is_of(tree, node) for node in found[0]):
        path, end = [tree.root, *found[0]], found[1]
        is_path = all(node.parent is above for above, node in pairwise(path))
        if is_path and path[-1].first_index <= end <= min(path[-1].end, num_blocks) and bool(end) == bool(found[0]):
            return
    asked = f"Found(the nodes below the root on the way, how many blocks match: at most {num_blocks})"
    raise _refused(tree, "find", asked, found)


def _check_match(tree: Any, node: Any, request: Request, num_blocks: int) -> None:
    """Refuse anything but a node of the tree within the walk's limit: its blocks become the request's."""
    if not (_is_of(tree, node) and node.end <= num_blocks):
        asked = f"a node of the tree (or self.root) that ends after at most {num_blocks} blocks"
        raise _refused(tree, "match", asked, node)


def _check_child_of(tree: Any, child: Any, node: Node, request: Request) -> None:
    """Refuse anything but a child that begins like the request: the walk would never end, or split it at 0."""
    following = request.links[node.end : node.end + 1]
    is_child = _is_of(tree, child) and child.parent is node and child.links[:1] == following
    if child is not None and not is_child:
        asked = f"None, or a child of {node} that begins with the request's next block"
        raise _refused(tree, "child_of", asked, child)


def _check_num_equal(tree: Any, length: Any, node: Node, request: Request, num_blocks: int) -> None:
    """Refuse numbers at which the node cannot be split."""
    most = min(len(node.block_ids), num_blocks - node.first_index)
    if not (is_single_int(length) and 1 <= length <= most):
        raise _refused(tree, "num_equal", f"1 to {most} blocks of {node}", length)


def _check_split(tree: Any, upper: Any, node: Any, num_blocks: int) -> None:
    """Refuse anything but the node that is now above."""
    if not (_is_of(tree, upper) and upper is node.parent and len(upper.block_ids) == num_blocks):
        raise _refused(tree, "split", f"the new node with the first {num_blocks} blocks of {node}, its parent", upper)


def _check_insert(tree: Any, inserted: Any, request: Request, block_ids: Sequence[int]) -> None:
    """Refuse anything but the node that ends the blocks, and how many of them the tree had."""
    end = len(block_ids)
    is_pair = isinstance(inserted, tuple) and len(inserted) == 2 and is_single_int(inserted[1])
    if not (is_pair and _is_of(tree, inserted[0]) and inserted[0].end == end and 0 <= inserted[1] <= end):
        asked = f"Inserted(the node that ends the {end} blocks, the number of them that the tree had)"
        raise _refused(tree, "insert", asked, inserted)


def _check_add_leaf(tree: Any, leaf: Any, parent: Node, request: Request, block_ids: Sequence[int]) -> None:
    """Refuse anything but a node of as many blocks."""
    if not (_is_of(tree, leaf) and len(leaf.block_ids) == len(block_ids)):
        raise _refused(tree, "add_leaf", f"the new child of {parent} with these blocks", leaf)


def _check_held_by(tree: Any, node: Any, request: Request) -> None:
    """Refuse anything but a node of the tree: its blocks count as the request's."""
    if not _is_of(tree, node):
        raise _refused(tree, "held_by", "a node of the tree, or self.root for a request without a lock", node)


def _check_next_leaf(tree: Any, leaf: Any) -> None:
    """Refuse a node that cannot go: one that requests need, or that others hang from."""
    is_leaf = _is_of(tree, leaf) and leaf is not tree.root and not leaf.children
    if leaf is not None and not (is_leaf and not leaf.num_locks):
        raise _refused(tree, "next_leaf", "None, or a leaf of the tree without locks", leaf)


def _is_of(tree: Any, node: Any) -> bool:
    return isinstance(node, Node) and (node is tree.root or tree.nodes.get(node.node_id) is node)


def _refused(tree: Any, name: str, asked: str, answer: Any) -> ValueError:
    return ValueError(f"{name_of(tree, name)} must return {asked}; it returned {shown(answer)}")


TREE_CHECKS: Checks = MappingProxyType(
    {
        "find": _check_find,
        "match": _check_match,
        "child_of": _check_child_of,
        "num_equal": _check_num_equal,
        "split": _check_split,
        "insert": _check_insert,
        "add_leaf": _check_add_leaf,
        "held_by": _check_held_by,
        "next_leaf": _check_next_leaf,
    }
)
"""As CHECKS in core/guard.py, for PrefixTree."""
