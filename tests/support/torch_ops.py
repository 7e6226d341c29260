"""Torch ops that a computation dispatches, and the bytes of tensors that they read and write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class TorchOps(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the torch ops that launch or copy; the others allocate, make views, or ask about memory.

    On CUDA, pin_memory() asks first whether memory is pinned already. num_bytes: of the ops' tensors, each once per op
    that reads or writes it.
    """

    FREE = ("empty", "new_empty", "detach", "lift_fresh", "is_pinned")
    VIEWS = ("select", "slice", "squeeze", "unbind", "unsqueeze", "view")

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []
        self.num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if (name := func.overloadpacket.__name__) not in self.FREE + self.VIEWS:
            self.names.append(name)
            self.num_bytes += sum(tensor.numel() * tensor.element_size() for tensor in _tensors(args, kwargs, result))
        return result


def _tensors(*values: Any) -> Iterator[Tensor]:
    return (value for value in tree_leaves(values) if isinstance(value, Tensor))
