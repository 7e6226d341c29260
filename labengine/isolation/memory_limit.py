"""A limit on the memory of this process. Standard library only: other engines' interpreters import it, too."""

from __future__ import annotations

from contextlib import suppress

MEMORY_BYTES = 2**29
"""Memory that a process may use beyond what it has at the start."""
RESERVE_BYTES = 2**26
"""Memory beyond that, for judging and reporting on code that filled its memory and keeps it."""
_memory: dict[int, int] = {}
"""The limits of this process, by the resource module's numbers; empty if it is not limited."""


def limit_memory() -> None:
    """Make this process raise MemoryError when it uses MEMORY_BYTES more than now. On Linux.

    Private writable memory counts. A limit on all addresses (RLIMIT_AS) would also count the stack, and a stack that
    cannot grow ends the process with a signal; that limit is set higher, for shared memory.
    """
    import resource

    with open("/proc/self/statm") as file:
        addresses, *_, data, _ = (int(pages) * resource.getpagesize() for pages in file.read().split())
    _memory[resource.RLIMIT_DATA] = data + MEMORY_BYTES
    _memory[resource.RLIMIT_AS] = addresses + 2 * MEMORY_BYTES
    _set_memory()


def open_reserve() -> None:
    """Give a process whose memory is full enough more to report it."""
    for kind in _memory:
        _memory[kind] += RESERVE_BYTES
    if _memory:
        _set_memory()


def _set_memory() -> None:
    import resource

    for kind, num_bytes in _memory.items():
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (num_bytes, resource.RLIM_INFINITY))
