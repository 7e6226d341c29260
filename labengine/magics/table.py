"""The table of %lab's commands: reading a line, help and completion follow from it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import cleandoc
from itertools import chain
from textwrap import wrap
from typing import Any, NoReturn, TypeVar

from IPython.core.error import UsageError

_WORD = re.compile(r"""(["'])(?P<quoted>.*?)\1(?=\s|$)|(?P<bare>\S+)""", re.DOTALL)


_WIDTH = 110
"""Characters of a line of an explanation."""
_MOST_PRINTED = 30
"""Values of an argument that its help prints; more are offered by completion only."""


def words(line: str) -> list[str]:
    """Split at white space. Quotes join words; an apostrophe inside a word is an ordinary character."""
    return [match["quoted"] if match["bare"] is None else match["bare"] for match in _WORD.finditer(line)]


def asks_for_help(entered: Sequence[str]) -> bool:
    """Return True if the first or the last word is --help or -h."""
    return bool(entered) and not {entered[0], entered[-1]}.isdisjoint(("--help", "-h"))


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the sentence after 'there is no ...': the nearest match, or all known words."""
    known = list(known)
    near = [name for name in known if name.startswith(word)] or get_close_matches(word, known, n=1)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join(known)}" if known else "it takes no options"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as argparse takes it, and the values that completion offers for it."""

    name: str
    settings: dict[str, Any]
    offers: Sequence[str] = ()
    short: tuple[str, ...] = ()
    """Its one-letter form, if it has one."""


def argument(name: str, *short: str, offers: Sequence[str] = (), **settings: Any) -> Argument:
    """Return an option ('--copies') or a positional ('num_steps'); settings as for ArgumentParser.add_argument."""
    return Argument(name, settings, tuple(offers), short)


class LineReader(argparse.ArgumentParser):
    """Reads the words after a magic into keyword arguments, only those given. Raises UsageError for wrong ones."""

    def __init__(self, call: str, arguments: Sequence[Argument]) -> None:
        super().__init__(prog="", add_help=False, allow_abbrev=False)
        self.options = tuple(argument.name for argument in arguments if argument.name.startswith("-"))
        self._offers = {argument.name: argument.offers for argument in arguments}
        self._actions_by_name = {a.name: self.add_argument(*a.short, a.name, **a.settings) for a in arguments}
        self.called = call
        self.call = f"{call} {' '.join(self.format_usage().removeprefix('usage:').split())}".strip()

    def read(self, entered: Sequence[str]) -> dict[str, Any]:
        """Return keyword arguments from words; options may stand anywhere."""
        known, unknown = self.parse_known_intermixed_args(entered)
        if unknown and unknown[0].startswith("-"):
            self.error(f"there is no option {unknown[0]}; {nearest(unknown[0], self.options)}")
        if unknown:
            self.error(f"{unknown[0]!r} is one word too many")
        return {name: value for name, value in vars(known).items() if value is not None}

    def explanation(self) -> str:
        """Return the usage, and a line per argument: its help and its values."""
        lines = wrap(self.call, _WIDTH, subsequent_indent=" " * 12, break_on_hyphens=False)
        for name, action in self._actions_by_name.items():
            value = f" {action.metavar}" if name.startswith("-") and action.metavar else ""
            offers = ", ".join(self._offers[name]) if len(self._offers[name]) <= _MOST_PRINTED else ""
            text = " ".join(filter(None, [action.help, f"({offers})" if offers else ""]))
            called = name if name.startswith("-") else str(action.metavar)
            lines += wrap(f"  {called + value:<34}{text}", _WIDTH, subsequent_indent=" " * 36, break_on_hyphens=False)
        return "\n".join(lines)

    def completions(self, entered: Sequence[str]) -> list[str]:
        """Return possible next words: values of the option before it, else the options that are not there yet.

        At first: the values of arguments without a name.
        """
        if entered and entered[-1] in self.options and self._actions_by_name[entered[-1]].nargs != 0:
            return list(self._offers[entered[-1]])
        offered = [option for option in self.options if option not in entered]
        unnamed = [offers for name, offers in self._offers.items() if not name.startswith("-")]
        return offered if entered else [*chain(*unnamed), *offered]

    def error(self, message: str) -> NoReturn:
        """Raise UsageError with the usage."""
        raise UsageError(f"{message}\nusage: {self.call}")


@dataclass(frozen=True, slots=True)
class Command:
    """One command of %lab: the reader of its line, and the function that runs it."""

    name: str
    run: Callable[..., object]
    reader: LineReader
    completes: Callable[[Sequence[str]], Sequence[str]] | None = None
    """Completions after a positional argument, besides the reader's."""

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.run.__doc__ or "").splitlines()[0]

    @property
    def explanation(self) -> str:
        """The function's docstring, the usage, and the arguments."""
        return f"{cleandoc(self.run.__doc__ or '')}\n\n{self.reader.explanation()}"

    def completions(self, entered: Sequence[str]) -> list[str]:
        """Return completions for the next word."""
        offered = self.reader.completions(entered)
        if self.completes is None or not entered or entered[-1].startswith("-"):
            return offered
        return [*self.completes(entered), *offered]


COMMANDS: dict[str, Command] = {}
"""All commands, in the order of the help."""


OF_CELLS = ("patch",)
"""Commands that take the text below their line, as the keyword `cell`: %%lab patch."""


Run = TypeVar("Run", bound=Callable[..., object])


def command(
    *arguments: Argument,
    name: str = "",
    call: str = "",
    completes: Callable[[Sequence[str]], Sequence[str]] | None = None,
) -> Callable[[Run], Run]:
    """Register a function as a command, under its own name or `name`. call: the words before its arguments."""

    def register(run: Run) -> Run:
        text = name or run.__name__
        COMMANDS[text] = Command(text, run, LineReader(call or f"%lab {text}", arguments), completes)
        return run

    return register


def put_in_order(*names: str) -> None:
    """Sort the commands as in `names`. Raises ValueError unless these are all commands."""
    if set(names) != set(COMMANDS):
        raise ValueError(f"commands in the table and in the order differ: {set(names) ^ set(COMMANDS)}")
    for name in names:
        COMMANDS[name] = COMMANDS.pop(name)


def command_named(name: str) -> Command:
    """Return the command called `name`. Raises UsageError, naming the nearest match."""
    if name not in COMMANDS:
        raise UsageError(f"%lab has no {name!r}; {nearest(name, COMMANDS)}")
    return COMMANDS[name]


def completions(line: str, cell_readers: dict[str, LineReader]) -> list[str]:
    """Return completions at the end of a line that begins with %lab or with a cell magic; else an empty list."""
    entered = words(line)
    if not line[-1:].isspace():
        del entered[-1:]
    match entered:
        case ["%lab"]:
            return list(COMMANDS)
        case ["%lab", name, *others] if name in COMMANDS:
            return COMMANDS[name].completions(others)
        case ["%%lab"]:
            return list(OF_CELLS)
        case ["%%lab", name, *others] if name in OF_CELLS:
            return COMMANDS[name].completions(others)
        case [magic, *others] if magic in cell_readers:
            return cell_readers[magic].completions(others)
    return []


def listing(width: int = 110) -> str:
    """Return every command with its usage and its summary."""
    lines = []
    for known in COMMANDS.values():
        lines += wrap(known.reader.call, width, subsequent_indent=" " * 12, break_on_hyphens=False)
        lines.append(f"        {known.summary}")
    return "\n".join(lines)
