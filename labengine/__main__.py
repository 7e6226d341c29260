"""labengine, or python -m labengine: one sub-command per task; --help lists them."""

from __future__ import annotations

import argparse
import io
import os
import select
import sys
from contextlib import redirect_stdout
from errno import EIO, EPIPE
from typing import TextIO

from labengine import terminal as _terminal  # noqa: F401  (the import fills the table of commands)
from labengine.commands import TERMINAL
from labengine.config import ConfigError
from labengine.record.wording import visible


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit status, 2 for a ConfigError, or 141 if the reader of its output has gone."""
    options = _parser().parse_args(arguments)
    command = TERMINAL[options.command]
    out = sys.stdout
    try:
        with redirect_stdout(_VisibleText(out)):
            status = command.run(options) or 0
        out.flush()
        return status
    except ConfigError as error:
        print(f"labengine: {visible(command.as_typed(str(error)))}", file=sys.stderr)
        return 2
    except OSError as error:  # as in `labengine doctor run.lab | head`, or after the terminal was closed
        if error.errno not in (EPIPE, EIO) or not _is_closed(out):  # the error concerns another file
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # Python flushes it once more when it exits
        return 128 + 13


def _is_closed(stream: TextIO) -> bool:
    """Return True for a closed terminal, and for a pipe whose reader has gone, such as `head` after its last line."""
    try:
        asked = select.poll()
        asked.register(stream.fileno(), select.POLLOUT)
        return any(found & (select.POLLERR | select.POLLHUP) for _, found in asked.poll(0))
    except (AttributeError, OSError, ValueError):  # not a terminal or pipe, or the system cannot tell
        return False


class _VisibleText(io.TextIOBase):
    """A terminal or pipe; text from files reaches it without control and direction characters."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        """Write the text, with hidden characters made visible."""
        self._out.write(visible(text))
        return len(text)

    def flush(self) -> None:
        """Flush the underlying stream."""
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
