"""Changes to the prefix tree; the live checks play them in labs of a tree edition."""

from __future__ import annotations

from mutants.table.mutant import Mutant

TREE = "core/radix/prefix_tree.py"
MINI_TREE = "core/mini_sglang/prefix_tree.py"
WHOLE_LEAVES = "core/radix/whole_leaf_tree.py"
POOL = "core/radix/block_pool.py"
GROUP = "core/radix/full_attention.py"
MANAGER = "core/radix/kv_cache_manager.py"

MUTANTS = (
    Mutant(
        "a split forgets the locks of the upper half",
        "state",
        TREE,
        "upper.num_locks, upper.touched = node.num_locks, node.touched",
        "upper.touched = node.touched",
    ),
    Mutant(
        "a split makes the upper half the youngest",
        "state",
        TREE,
        "upper.num_locks, upper.touched = node.num_locks, node.touched",
        "upper.num_locks, upper.touched = node.num_locks, self._num_touches + 1",
    ),
    Mutant("a split leads past the lower half", "state", TREE, "        upper.children[key] = node\n", ""),
    Mutant(
        "a leaf takes no reference to its blocks",
        "state",
        TREE,
        "        for block_id in block_ids:\n            self._pool.share(self._pool.blocks[block_id])\n",
        "",
    ),
    Mutant(
        "a leaf hangs from the root",
        "state",
        TREE,
        "        node = self._new_node(parent, request.extra_keys, [*block_ids], links)",
        "        node = self._new_node(parent, request.extra_keys, [*block_ids], links)\n        node.parent = self.root",
    ),
    Mutant(
        "a lock stops at its node",
        "state",
        TREE,
        "self._count_locks(node.path(), 1)",
        "self._count_locks(node.path()[-1:], 1)",
    ),
    Mutant(
        "an unlock leaves the topmost node locked",
        "state",
        TREE,
        "self._count_locks(node.path(), -1)",
        "self._count_locks(node.path()[1:], -1)",
    ),
    Mutant(
        "a request's end leaves its lock",
        "state",
        GROUP,
        '        """Unlock the request\'s nodes, and free its table."""\n        self.tree.unlock(request)\n',
        "",
    ),
    Mutant(
        "locked leaves are evicted",
        "state",
        TREE,
        "        return not node.num_locks and not node.children and self",
        "        return not node.children and self",
    ),
    Mutant(
        "inner nodes are evicted",
        "state",
        TREE,
        "        return not node.num_locks and not node.children and self",
        "        return not node.num_locks and self",
    ),
    Mutant(
        "the lock does not move to an inserted node",
        "reads",
        GROUP,
        "            tree.unlock(request)\n            tree.lock(node, request)\n",
        "            tree.unlock(request)\n",
    ),
    Mutant(
        "the walk takes one block that differs",
        "reads",
        TREE,
        "return next((i for i, (one, link)",
        "return next((i + 1 for i, (one, link)",
    ),
    Mutant(
        "the walk ignores extra keys",
        "reads",
        TREE,
        "return node.children.get((request.extra_keys, request.links[node.end]))",
        "return next((one for (_, link), one in node.children.items() if link == request.links[node.end]), None)",
    ),
    Mutant(
        "what a request generated is not inserted at its end",
        "state",
        MANAGER,
        "            self.keep(request)\n        super().free",
        "            pass\n        super().free",
    ),
    Mutant(
        "an undone split leaves its upper half", "journal", TREE, "        self.nodes.pop(upper.node_id, None)\n", ""
    ),
    Mutant(
        "a leaf that loses its end keeps the tokens of it",
        "state",
        TREE,
        "            del node.block_ids[num_kept:], node.links[num_kept:]\n",
        "            del node.block_ids[num_kept:]\n",
    ),
    Mutant(
        "an undone eviction leaves a leaf shortened",
        "journal",
        TREE,
        "        leaf.block_ids[num_kept:], leaf.links[num_kept:] = block_ids, links\n",
        "",
    ),
    Mutant(
        "an undone insertion still counts as evictable",
        "journal",
        TREE,
        "        self.num_evictable, self._num_touches = num_evictable, num_touches\n",
        "        self._num_touches = num_touches\n",
    ),
    Mutant(
        "an undone touch stays",
        "journal",
        TREE,
        "            node.touched = touched\n            self._offer(node)\n",
        "            self._offer(node)\n",
    ),
    Mutant(
        "a hit leaves its deepest node as old as it was",
        "policy",
        MINI_TREE,
        "        self.touch(path)\n        return node\n",
        "        self.touch(path[:-1])\n        return node\n",
    ),
    Mutant(
        "an eviction takes a leaf too many",
        "policy",
        WHOLE_LEAVES,
        "while num_blocks > 0 and",
        "while num_blocks >= 0 and",
    ),
    Mutant(
        "freed blocks are reused first",
        "policy",
        POOL,
        'freed_go_to: QueueEnd = "tail"',
        'freed_go_to: QueueEnd = "head"',
    ),
)
