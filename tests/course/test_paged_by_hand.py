"""What notebook 02 computes, on a few numbers: its functions are taken from its cells, as a reader runs them.

The notebook itself runs in the sweep: it loads a model twice.
"""

from __future__ import annotations

import ast
import json
import math
from typing import Any

import pytest
import torch

from checkout import ROOT

TABLE = (5, 0, 3)
NUM_TOKENS = 9


def functions(*names: str) -> dict[str, Any]:
    """Return the notebook's functions of these names, in a namespace with random pools of two KV heads."""
    notebook = json.loads((ROOT / "notebooks" / "02_paged_attention_by_hand.ipynb").read_text(encoding="utf-8"))
    torch.manual_seed(0)
    pools = {name: torch.randn(6, 4, 2, 8) for name in ("key_pool", "value_pool")}
    space: dict[str, Any] = {"math": math, "torch": torch, "num_heads": 4, "num_kv_heads": 2, "head_dim": 8, **pools}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            for node in ast.parse("".join(cell["source"])).body:
                if isinstance(node, ast.FunctionDef) and node.name in names:
                    exec(compile(ast.Module([node], []), "02", "exec"), space)
    assert {*names} <= {*space}
    return space


def test_block_by_block_is_the_same_as_gathered() -> None:
    space = functions("gather", "attention", "paged_attention")
    query = 9 * torch.randn(4, 8)
    keys, values = (space["gather"](space[name], TABLE, NUM_TOKENS) for name in ("key_pool", "value_pool"))
    assert torch.equal(keys[4], space["key_pool"][0, 0]) and len(keys) == NUM_TOKENS
    gathered, weights = space["attention"](query, keys, values)
    dense = torch.nn.functional.scaled_dot_product_attention(
        query[None, :, None], keys.transpose(0, 1)[None], values.transpose(0, 1)[None], enable_gqa=True
    )[0, :, 0]
    paged = space["paged_attention"](query, TABLE, NUM_TOKENS)
    assert torch.allclose(gathered, dense, atol=1e-5) and torch.allclose(paged, dense, atol=1e-5)
    assert torch.allclose(weights.sum(1), torch.ones(4))
    for table, num_tokens in (((5, 1, 3), NUM_TOKENS), (TABLE, 12)):  # a wrong entry; an unmasked last block
        assert not torch.allclose(space["paged_attention"](query, table, num_tokens), dense, atol=1e-2)


def test_online_softmax_bears_large_scores() -> None:
    space = functions("two_sums", "online")
    scores, values = [[1.0, 3.0], [4.0, -2.0]], [[1.0, 2.0], [3.0, 4.0]]
    large = [[score + 1000 for score in block] for block in scores]
    assert math.isclose(space["online"](scores, values), space["two_sums"](scores, values))
    assert math.isclose(space["online"](large, values), space["two_sums"](scores, values))
    with pytest.raises(OverflowError):
        space["two_sums"](large, values)
