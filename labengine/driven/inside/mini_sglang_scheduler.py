"""mini-sglang's own scheduler, cache manager and radix tree without a model, on a CPU.

LABENGINE_MINI_SGLANG names a clone of mini-sglang, by default the current folder. It needs torch and msgpack. Stood in
for: the engine, the compiled comparison of keys, CUDA's streams, pinned memory, and the tree's clock.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import torch

CLONE = Path(os.environ.get("LABENGINE_MINI_SGLANG") or ".")
VERSION = "checkout"


class Stream:
    """Stands for a stream, a context manager of one, and an event."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def wait_stream(self, other: object) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""


class Sampled(NamedTuple):
    """A step's tokens, in mini-sglang's terms."""

    next_tokens_gpu: torch.Tensor
    next_tokens_cpu: torch.Tensor
    copy_done_event: Any


class StandInEngine:
    """Stands for mini-sglang's engine. config.next_token(request) is what it samples; config.on_batch sees batches."""

    def __init__(self, config: Any) -> None:
        self.device, self.stream, self.tp_cpu_group = torch.device("cpu"), Stream(), None
        core: Any = importlib.import_module("minisgl.core")
        core._GLOBAL_CTX = None
        self.ctx = core.Context(config.page_size)
        core.set_global_ctx(self.ctx)
        self.num_pages, self.max_seq_len = config.num_pages, config.num_pages * config.page_size
        shape = config.max_running_req + 1, -(-self.max_seq_len // 32) * 32
        self.ctx.page_table = self.page_table = torch.zeros(shape, dtype=torch.int32)
        self.graph_runner = SimpleNamespace(pad_batch=lambda batch: setattr(batch, "padded_reqs", batch.reqs))
        self.attn_backend = SimpleNamespace(prepare_metadata=lambda batch: None)
        self.sampler = SimpleNamespace(prepare=lambda batch: None)
        self._config = config

    def forward_batch(self, batch: Any, _: object) -> Sampled:
        """Count the batch as computed."""
        self._config.on_batch(batch)
        for request in batch.reqs:
            request.complete_one()
        tokens = torch.tensor([self._config.next_token(request) for request in batch.reqs], dtype=torch.int32)
        return Sampled(tokens, tokens.clone(), Stream())


def _import_upstream(python: Path) -> Any:
    """Import mini-sglang from its folder python/, with the stand-ins; return the module of its scheduler."""
    sys.path.insert(0, str(python))
    for name, content in (("kernel", {"fast_compare_key": _common_prefix}), ("engine", {"Engine": StandInEngine})):
        module = sys.modules[f"minisgl.{name}"] = ModuleType(f"minisgl.{name}")
        vars(module).update(content, EngineConfig=SimpleNamespace)
    for name in ("empty", "tensor"):
        setattr(torch, name, _unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self, *_: self  # type: ignore[method-assign]
    torch.cuda.Stream = torch.cuda.stream = torch.cuda.set_stream = Stream  # type: ignore[assignment,misc]
    found: Any = importlib.import_module("minisgl.scheduler.scheduler")
    found.load_tokenizer = lambda _: SimpleNamespace(eos_token_id=-1)
    quiet = SimpleNamespace(**{f"{kind}_rank0": lambda *_: None for kind in ("debug", "info", "warning")})
    found.logger = vars(importlib.import_module("minisgl.scheduler.prefill"))["logger"] = quiet
    clock = SimpleNamespace(monotonic_ns=count(1).__next__)
    vars(importlib.import_module("minisgl.kvcache.radix_cache"))["time"] = clock
    return found


def _common_prefix(one: torch.Tensor, other: torch.Tensor) -> int:
    length = min(len(one), len(other))
    differs = (one[:length] != other[:length]).nonzero()
    return int(differs[0]) if len(differs) else length


def _unpinned(make: Any) -> Any:
    return lambda *args, pin_memory=False, **keywords: make(*args, **keywords)


scheduling = _import_upstream(CLONE / "python")
core, message = (importlib.import_module(f"minisgl.{name}") for name in ("core", "message"))


class OrderedScheduler(scheduling.Scheduler):  # type: ignore[name-defined]
    """mini-sglang's scheduler without sockets.

    Upstream decodes a set of requests in the order of their addresses, which differs from run to run; here it is the
    order of their first steps.
    """

    def __init__(self, config: Any) -> None:
        self.places: dict[int, int] = {}
        """By uid, the place of a request in that order."""
        super().__init__(config)

    def offline_receive_msg(self, blocking: bool = False) -> list[Any]:
        """Return nothing: messages are processed as they come."""
        return []

    def offline_send_result(self, reply: list[Any]) -> None:
        """Do nothing."""

    def _prepare_batch(self, batch: Any) -> Any:
        if batch.is_decode:
            batch.reqs.sort(key=lambda request: self.places[request.uid])
        for request in batch.reqs:
            self.places.setdefault(request.uid, len(self.places))
        return super()._prepare_batch(batch)


class MiniSglangCore:
    """One scheduler with an empty cache, in its normal loop.

    settings: num_blocks, groups [[page size, None]], max_num_seqs, max_num_batched_tokens. token_at: returns what a
    request samples at a position.
    """

    def __init__(self, settings: Mapping[str, Any], token_at: Callable[[str, int], int]) -> None:
        self.page_size = settings["groups"][0][0]
        self.plan: dict[str, tuple[int, int]] = {}
        """Per request of the newest step: the first computed position, and the number of tokens."""
        self.after_call: Callable[[str], object] = lambda call: None
        """Called after each call of the scheduler: add, schedule, update, abort."""
        self._token_at = token_at
        self._prompts: dict[str, list[int]] = {}
        self._batch: list[Any] = []
        """Requests that are being computed."""
        self.scheduler: Any = OrderedScheduler(
            SimpleNamespace(
                page_size=self.page_size,
                num_pages=settings["num_blocks"],
                max_running_req=settings["max_num_seqs"],
                max_extend_tokens=settings["max_num_batched_tokens"],
                cache_type="radix",
                model_path="",
                offline_mode=True,
                tp_info=SimpleNamespace(is_primary=lambda: True, size=1, rank=0),
                next_token=self.next_token,
                on_batch=self.begin,
            )
        )

    @property
    def is_idle(self) -> bool:
        """True if no request waits or runs."""
        return not (self.scheduler.prefill_manager.runnable or self.scheduler.decode_manager.runnable)

    def add(self, name: str, prompt: Sequence[int], max_tokens: int, salt: str | None = None) -> None:
        """Queue a request; mini-sglang has no salts."""
        self.queue(name, prompt, max_tokens, ignore_eos=True)
        self.after_call("add")

    def queue(self, name: str, prompt: Sequence[int], max_tokens: int, *, ignore_eos: bool) -> None:
        """Queue a request."""
        self._prompts[name] = list(prompt)
        sampling = core.SamplingParams(max_tokens=max_tokens, ignore_eos=ignore_eos)
        tokens = torch.tensor(list(prompt), dtype=torch.int32)
        self.scheduler._process_one_msg(message.UserMsg(uid=int(name), input_ids=tokens, sampling_params=sampling))

    def abort(self, name: str) -> None:
        """Abort a request that has not ended."""
        if name in self.state()["requests"]:
            self.cancel(name)
            self.after_call("abort")

    def cancel(self, name: str) -> None:
        """Abort a request."""
        self.scheduler._process_one_msg(message.AbortBackendMsg(uid=int(name)))

    def step(self) -> bool:
        """Go through the loop once. Returns False if nothing was scheduled."""
        if self.is_idle:
            return False
        self.plan = {}
        self.turn()
        if not self.plan:
            self.after_call("schedule")
        self.after_call("update")
        return bool(self.plan)

    def turn(self) -> None:
        """Go through the loop once."""
        self.scheduler.normal_loop()
        self._batch = []

    def begin(self, batch: Any) -> None:
        """Note a scheduled batch."""
        self._batch = batch.reqs
        self.plan = {str(one.uid): (one.cached_len, one.extend_len) for one in batch.reqs}
        self.after_call("schedule")

    def next_token(self, request: Any) -> int:
        """Return what a computed request samples."""
        return self._token_at(str(request.uid), int(request.cached_len))

    def content_of(self, name: str) -> list[Any]:
        """Return a request's prompt after an empty salt."""
        return [None, *self._prompts[name]]

    def state(self) -> dict[str, Any]:
        """Return status and table of the open requests, the free pages, the tree, and the node that each request holds.

        A node is its number, its parent's, its locks, and its pages; the oldest node comes first.
        """
        pending = [str(one.uid) for one in self.scheduler.prefill_manager.pending_list]
        held = {str(one.uid): one for one in self._held()}
        tables = {name: self.table_of(held[name]) if name in held else [] for name in dict.fromkeys([*pending, *held])}
        root = self.scheduler.cache_manager.prefix_cache.root_node
        return {
            "requests": {
                name: ["waiting" if name in pending else "running", [table]] for name, table in tables.items()
            },
            "free_queue": self.free_pages(),
            "tree": [node[:3] + node[4:] for node in self.nodes()],
            "holds": {
                name: self.number_of(one.cache_handle.node)
                for name, one in held.items()
                if one.cache_handle.node is not root
            },
            "null_block": None,
        }

    def _held(self) -> list[Any]:
        """Return the requests that hold pages."""
        chunked = (pending.chunked_req for pending in self.scheduler.prefill_manager.pending_list)
        found = [*self._batch, *self.scheduler.decode_manager.running_reqs, *filter(None, chunked)]
        return list({one.uid: one for one in found}.values())

    def table_of(self, request: Any) -> list[int]:
        """Return the pages of a request, those of the batch that is being computed included."""
        length = request.device_len if request in self._batch else request.cached_len
        return self._pages(self.scheduler.engine.page_table[request.table_idx, :length])

    def free_pages(self) -> list[int]:
        """Return the free pages, the next one first."""
        return [slot // self.page_size for slot in self.scheduler.cache_manager.free_slots.tolist()]

    def nodes(self) -> list[list[Any]]:
        """Return each node's number, parent, locks, tokens and pages, the oldest first.

        Nodes of equal age are on one path, which counts from the root.
        """
        found = [
            (node.timestamp, depth, self.number_of(node), self.number_of(node.parent), node)
            for node, depth in self._below(self.scheduler.cache_manager.prefix_cache.root_node, 1)
        ]
        return [
            [number, parent, node.ref_count, node._key.tolist(), self._pages(node._value)]
            for _, _, number, parent, node in sorted(found, key=lambda one: one[:2])
        ]

    def _below(self, node: Any, depth: int) -> Iterator[tuple[Any, int]]:
        for child in node.children.values():
            yield child, depth
            yield from self._below(child, depth + 1)

    def number_of(self, node: Any) -> int:
        """Return a node's number, counted from the root."""
        return int(node.uuid - self.scheduler.cache_manager.prefix_cache.root_node.uuid)

    def _pages(self, slots: torch.Tensor) -> list[int]:
        return [slot // self.page_size for slot in slots.tolist()[:: self.page_size]]


CORE = MiniSglangCore
"""The engine that the finder drives."""

DECIDED_BY = {
    "RequestAdded": "PrefillManager.add_one_req",
    "PrefixHit": "PrefillAdder._try_allocate_one",
    "BlockTouched": "PrefillAdder._try_allocate_one",
    "NodeLocked": "CacheManager.lock",
    "NodeUnlocked": "CacheManager.unlock",
    "NodeSplit": "RadixPrefixCache._tree_walk",
    "NodesTouched": "RadixPrefixCache._tree_walk",
    "NodeInserted": "RadixPrefixCache.insert_prefix",
    "BlockCached": "RadixPrefixCache.insert_prefix",
    "NodeEvicted": "RadixPrefixCache.evict",
    "BlockEvicted": "RadixPrefixCache.evict",
    "BlockAllocated": "CacheManager.allocate_paged",
    "BlockFreed": "CacheManager.cache_req",
    "RequestScheduled": "Scheduler._schedule_next_batch",
    "RequestFinished": "Scheduler._process_last_data",
    "RequestFinished:abort": "Scheduler._process_one_msg",
}
"""The method that decides each kind of event."""
