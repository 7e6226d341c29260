"""labengine, or python -m labengine: one sub-command for each thing that one does; --help lists them."""

from __future__ import annotations

import argparse
import io
import os
import select
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from errno import EIO, EPIPE
from typing import TextIO

from labengine import terminal as _terminal  # noqa: F401  (importing it fills the table of commands)
from labengine.commands import TERMINAL
from labengine.config import ConfigError
from labengine.record.wording import visible


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return the exit status: the command's own, 2 for a ConfigError, 141 if nobody reads its output."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int | None] = TERMINAL[options.command].run
    out = sys.stdout
    try:
        with redirect_stdout(_VisibleText(out)):
            status = command(options) or 0
        out.flush()
        return status
    except ConfigError as error:
        print(f"labengine: {visible(str(error))}", file=sys.stderr)
        return 2
    except OSError as error:  # as in `labengine doctor run.lab | head`, or in a terminal that was closed
        if error.errno not in (EPIPE, EIO) or not _is_closed(out):  # another file's
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # Python flushes it once more at its end
        return 128 + 13


def _is_closed(stream: TextIO) -> bool:
    """Return True for a pipe whose reader has gone, as `head` goes after its lines, and for a closed terminal."""
    try:
        asked = select.poll()
        asked.register(stream.fileno(), select.POLLOUT)
        return any(found & (select.POLLERR | select.POLLHUP) for _, found in asked.poll(0))
    except (AttributeError, OSError, ValueError):  # no terminal or pipe, or a system that cannot tell
        return False


class _VisibleText(io.TextIOBase):
    """A terminal or a pipe to which files' texts come without control and direction characters."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        """Write the text with signs for what is hidden."""
        self._out.write(visible(text))
        return len(text)

    def flush(self) -> None:
        """Flush what it writes to."""
        self._out.flush()

    def isatty(self) -> bool:
        """Return True for a terminal."""
        return self._out.isatty()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="labengine", description="labengine on the command line")
    names = parser.add_subparsers(dest="command", required=True)
    for one in TERMINAL.values():
        as_written = argparse.RawDescriptionHelpFormatter
        reader = names.add_parser(one.name, help=one.summary, description=one.help, formatter_class=as_written)
        for argument in one.arguments:
            reader.add_argument(*argument.short, argument.name, **argument.settings)
    return parser


if __name__ == "__main__":
    sys.exit(main())
