"""A large file of token ids, read and hashed by another process while this one runs its prompts."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from labengine.config import ConfigError
from labengine.core.hash_chain import HashChain
from labengine.core.request import ExtraKeys
from labengine.isolation.alone import exit_of, forked
from labengine.isolation.limits import can_fork
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.packing import as_array
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic
from labengine.prefix_doctor.traffic.sources import FileTraffic
from labengine.system.garbage_collection import garbage_collection_paused
from labengine.system.wide_pipe import receive, wide_pipe

if TYPE_CHECKING:
    from multiprocessing.connection import Connection  # a browser has none

MIN_BYTES = 1 << 23
"""A smaller file is read within a second."""

BATCH = 16
"""Prompts sent at once: a pipe holds several times as many of 2,000 tokens."""


def read_ahead(traffic: Traffic, setting: Setting) -> Traffic:
    """Return traffic whose prompts come with their hashes, if it is a large file without texts, else the same.

    Pieces of texts are numbered as they are read, so the process that shows them has to read them.
    """
    is_large = isinstance(traffic, FileTraffic) and traffic.num_bytes >= MIN_BYTES
    if not is_large or traffic.token_text is not None or not _may_fork():
        return traffic
    chain, size = setting.parts.hash_chain(), setting.config.hash_block_size
    return replace(traffic, read=partial(_received, traffic, chain, size))


def _may_fork() -> bool:
    from multiprocessing import current_process

    return can_fork() and not current_process().daemon


def hashes_of(chain: HashChain, extra_keys: ExtraKeys, token_ids: Sequence[int], size: int) -> list[bytes]:
    """Return the hash chain of tokens, one hash for every `size` of them, without those of images."""
    block_hash, hashes = chain.root(extra_keys), list[bytes]()
    for block in zip(*[iter(token_ids)] * size, strict=False):
        block_hash = chain.link(block_hash, block)
        hashes.append(block_hash)
    return hashes


def _received(traffic: Traffic, chain: HashChain, size: int) -> Iterator[Prompt]:
    receiver, sender = wide_pipe()
    process = forked(_send, traffic, chain, size, receiver, sender)
    sender.close()
    try:
        while batch := receive(receiver):
            if isinstance(batch, Exception):
                raise batch
            yield from batch
        traffic.notes[:] = receive(receiver)
    except EOFError:
        process.join()
        why = f"the process that reads it has ended ({exit_of(process.exitcode)})"
        raise ConfigError(f"{traffic.title} was not read to its end: {why}") from None
    finally:
        receiver.close()
        process.join()


def _send(traffic: Traffic, chain: HashChain, size: int, receiver: Connection, sender: Connection) -> None:
    """Send batches of prompts, an empty one, and the notes; or an error, which ends the batches."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C closes the pipe, and that ends this process
    receiver.close()
    with suppress(BrokenPipeError), garbage_collection_paused():
        try:
            prompts = (_hashed(prompt, chain, size) for prompt in traffic)
            while batch := [*islice(prompts, BATCH)]:
                sender.send(batch)
            sender.send([])
            sender.send(traffic.notes)
        except BrokenPipeError:
            raise
        except Exception as error:
            sender.send(error)


def _hashed(prompt: Prompt, chain: HashChain, size: int) -> Prompt:
    if not prompt.images:
        prompt.block_hashes = hashes_of(chain, prompt.extra_keys, prompt.token_ids, size)
    prompt.token_ids = as_array(prompt.token_ids)
    return prompt
