"""KV computed by another engine, to fill an external tier with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from labengine.check.watch import Watch
from labengine.config import ConfigError, EngineConfig, SamplingParams
from labengine.core.connector import BlockKV, BlockTransfer, Connector, KVAccess
from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.engine.engine import Engine
from labengine.engine.loaded_model import LoadedModel, ModelOptions
from labengine.record.hooks import Hooks
from labengine.session.history.inputs import FillInput, pack
from labengine.session.settings import LabSettings
from labengine.session.stepper import Stepper


class Outbox(Connector):
    """Keeps the blocks that an engine saves, each once, to pass them to a tier. It never loads blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[BlockTransfer] = []
        self._contents: dict[tuple[int, int], BlockKV | None] = {}

    def has(self, group: int, block_hash: bytes) -> bool:
        """Return False: no block can be loaded."""
        return False

    def start_load_kv(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        """Raise NotImplementedError: no content matches, so it is never called."""
        raise NotImplementedError("an outbox cannot load blocks")

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Keep these blocks."""
        for transfer in saves:
            self._contents[transfer.group, transfer.block_id] = kv.read_block(transfer.group, transfer.block_id)
        self.sent += saves
        return tuple(saves)

    def forget(self, transfers: Sequence[BlockTransfer]) -> None:
        """Do nothing, because no content was promised."""

    def describe(self) -> str:
        """Return the number of blocks to deliver."""
        return f"outbox: {len(self.sent)} blocks to deliver"

    # Its KVAccess side: a tier reads blocks from it.

    def read_block(self, group: int, block_id: int) -> BlockKV | None:
        """Return the engine's content of that block."""
        return self._contents[group, block_id]

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Raise NotImplementedError: tiers write only blocks that they load."""
        raise NotImplementedError("an outbox cannot be written to")


def computed_elsewhere(
    model: LoadedModel, config: EngineConfig, options: ModelOptions, parts: Parts, token_ids: Sequence[int]
) -> Outbox:
    """Return the KV of a prompt's full blocks, computed by a second engine on the same weights.

    config, options: of the engine with the tier. parts: its parts, which define the hashes that it looks up.
    """
    num_tokens = len(token_ids) + 1
    num_blocks = 1 + sum(1 + -(-num_tokens // group.block_size) for group in model.config.groups)
    own = replace(
        config,
        num_blocks=num_blocks,
        max_num_batched_tokens=max(num_tokens, config.max_num_seqs),
        long_prefill_token_threshold=0,
        watermark=0.0,
        retention_interval=None,
    )
    sibling = model.sibling(own, replace(options, num_blocks=num_blocks))
    try:
        outbox = Outbox()
        elsewhere = Parts(name="elsewhere", hash_chain=parts.hash_chain).overriding(VLLM)
        hooks = Hooks()
        watch = Watch(hooks)  # it marks blocks with the identity of their content, which the checks compare
        engine = Engine(sibling.config, watch.wrap(sibling.runner), elsewhere, hooks, outbox)
        watch.follow(engine)
        engine.add(token_ids, SamplingParams(max_tokens=1, ignore_eos=True))
        engine.step()
        return outbox
    finally:
        sibling.release()


class Filling:
    """Puts KV of prompts into a session's external tier."""

    def __init__(self, settings: LabSettings, model: LoadedModel, parts: Parts, stepper: Stepper) -> None:
        self._settings, self._model, self._parts, self._stepper = settings, model, parts, stepper

    def fill(self, note: Callable[[FillInput], object], prompt: str | None, token_ids: Sequence[int] | None) -> int:
        """Fill the tier with a prompt's full blocks; return how many are new there. See Lab.fill_external.

        note: called with the input. ConfigError without a tier, and for an invalid prompt.
        """
        self._stepper.refuse_if_closed()
        self._model.refuse_call("fill_external")
        ids = self._model.prompt_ids("fill_external()", prompt, token_ids)
        if not ids:
            raise ConfigError("the prompt must not be empty: fill_external() needs at least one full block")
        self._model.refuse_too_long(len(ids), 1)
        if self._settings.external is None:
            raise ConfigError("this lab has no external tier to fill: make it with external='host'")
        with self._stepper.between_steps():
            done = FillInput(self._stepper.engine.num_finished_steps, pack(ids))
            num_blocks = self.repeat(done)
            note(done)
        return num_blocks

    def repeat(self, done: FillInput) -> int:
        """Repeat an input that filled the tier; return how many blocks are new. The caller holds the stepper's lock."""
        settings = self._settings
        outbox = computed_elsewhere(
            self._model, settings.engine_config(), settings.model_options(), self._parts, done.token_ids
        )
        return self._stepper.engine.transfers.take_in(outbox.sent, outbox)
