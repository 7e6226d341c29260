"""Captions about the prefix tree: what joined it, what was split, what is locked, and what left."""

from __future__ import annotations

from collections.abc import Sequence

from labengine import events as ev
from labengine.record.wording import counted, node_name
from labengine_widgets.words.mentions import Sentence, listing, the_blocks, the_request
from labengine_widgets.words.phrases import phrase, word
from labengine_widgets.words.scene import Scene


def node_inserted(run: Sequence[ev.NodeInserted | ev.BlockCached], scene: Scene) -> Sentence:
    """Describe a new node, and the contents that look-ups now find."""
    ids = [event.block_id for event in run if isinstance(event, ev.BlockCached) and event.mapped]
    found = listing(scene.letter(block_id) for block_id in ids if scene.filling.content(block_id) >= 0)
    end: tuple[str, ...] = (". Look-ups for ", found, f" find {'it' if len(ids) == 1 else 'them'}") if ids else ()
    return Sentence(phrase(run[0]).without_stop(), *end, ".")


def node_split(run: Sequence[ev.NodeSplit], scene: Scene) -> Sentence:
    """Describe a split, and where in the text it is."""
    upper = scene.fold.tree.nodes[run[0].upper_id]
    num_tokens = (upper.first_index + len(upper.block_ids)) * scene.fold.groups[0].block_size
    where = f". After {counted(num_tokens, 'token')} another text parts from it there."
    return Sentence(phrase(run[0]).without_stop(), ", ", the_blocks(upper.block_ids), where)


def locks_changed(run: Sequence[ev.NodeLocked | ev.NodeUnlocked], scene: Scene) -> Sentence:
    """Describe a lock that begins, moves or ends, and what can be evicted then."""
    first, last = run[0], run[-1]
    if isinstance(last, ev.NodeUnlocked):
        return Sentence(phrase(last).without_stop(), ": ", *_unprotected(last, scene), ".")
    if isinstance(first, ev.NodeUnlocked):
        way = f"'s lock moves from {node_name(first.node_id)} to {node_name(last.node_id)}, and protects all above it."
        return Sentence(the_request(last.request_id), way)
    return phrase(last)


def _unprotected(event: ev.NodeUnlocked, scene: Scene) -> Sequence[str]:
    """Return the blocks that no lock protects any more, in words."""
    tree = scene.fold.tree
    path = [tree.nodes[node_id] for node_id in reversed(tree.path(event.node_id))]
    ids = [block_id for node in path if not node.num_locks for block_id in node.block_ids]
    return ("no lock protects ", the_blocks(ids), " any more") if ids else ("other requests still lock them",)


def node_evicted(run: Sequence[ev.NodeEvicted | ev.BlockEvicted], scene: Scene) -> Sentence:
    """Describe nodes that leave the tree, in order, and those that lose their end."""
    evicted = [event for event in run if isinstance(event, ev.NodeEvicted)]
    left = [event for event in evicted if not event.num_kept]
    told = [_left(left)] if len(left) > 1 else [phrase(event) for event in left]
    told += [phrase(event) for event in evicted if event.num_kept]
    return Sentence(told[0], *(part for one in told[1:] for part in (" ", one)))


def _left(left: Sequence[ev.NodeEvicted]) -> Sentence:
    order = ", ".join(str(event.node_id) for event in left[:3])
    num_blocks = sum(len(event.block_ids) for event in left)
    why = word("evicted_node", left[0].reason)
    return Sentence(
        f"{counted(len(left), 'node')} with {counted(num_blocks, 'block')} leave the prefix tree ({why}), first "
        f"{order} and so on{word('node_freed_to', left[0].queue_end)}."
    )
