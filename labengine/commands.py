"""The tables of commands, for the terminal (labengine NAME ...) and for %lab: arguments, help, function.

Parsers, --help and completion follow from them. A function's docstring is the help on its command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument for argparse, and the values that completion offers for it."""

    name: str
    settings: dict[str, Any]
    offers: Sequence[str] = ()
    short: tuple[str, ...] = ()
    """Its one-letter form, if it has one."""


def argument(name: str, *short: str, offers: Sequence[str] = (), **settings: Any) -> Argument:
    """Return an option ('--copies') or a positional ('num_steps'); settings as for ArgumentParser.add_argument."""
    return Argument(name, settings, tuple(offers), short)


Completes = Callable[[Sequence[str]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its arguments, and the function that runs it."""

    name: str
    run: Callable[..., Any]
    arguments: tuple[Argument, ...]
    call: str
    """The words before its arguments."""
    completes: Completes | None = None
    """Completions after a positional argument, besides the arguments' own."""

    @property
    def help(self) -> str:
        """The function's docstring."""
        return cleandoc(self.run.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first line of the help."""
        return self.help.partition("\n")[0]

    def as_typed(self, message: str) -> str:
        """Return an error message in the words of the command."""
        return as_typed(message, self.arguments)


def as_typed(message: str, arguments: Sequence[Argument]) -> str:
    """Return an error message with the names of options instead of those of Python's parameters.

    A name that is also an English word counts only as the message's subject.
    """
    for one in arguments:
        name = one.settings.get("dest") or one.name.lstrip("-").replace("-", "_")
        if one.name.startswith("--"):
            pattern = rf"(?<![-\w]){name}\b" if "_" in name else rf"^{name}(?= (?:must|needs|cannot)\b)"
            message = re.sub(pattern, one.name, message)
    return message


TERMINAL: dict[str, Command] = {}
"""Commands of the terminal, in the order of their help: labengine.terminal."""

LAB: dict[str, Command] = {}
"""Commands of %lab, in the order of their help: labengine.magics.commands."""

Run = TypeVar("Run", bound=Callable[..., Any])


def terminal_command(*arguments: Argument, name: str = "") -> Callable[[Run], Run]:
    """Register a function of the parsed options as a terminal command, under the function's name or `name`."""

    def register(run: Run) -> Run:
        text = name or run.__name__
        TERMINAL[text] = Command(text, run, arguments, f"labengine {text}")
        return run

    return register


def command(
    *arguments: Argument, name: str = "", call: str = "", completes: Completes | None = None
) -> Callable[[Run], Run]:
    """Register a function as a %lab command, under its own name or `name`; it gets the arguments by keyword."""

    def register(run: Run) -> Run:
        text = name or run.__name__
        LAB[text] = Command(text, run, arguments, call or f"%lab {text}", completes)
        return run

    return register


# -- arguments that several commands share -----------------------------------------------------------------------------

JSON = argument("--json", action="store_true", help="print the result as JSON")
HTML = argument("--html", metavar="OUT", help="write one HTML page with the run, to scrub through offline")
TOKENIZER = argument("--tokenizer", metavar="DIR", help="a model's directory or name, for the text of tokens")
SEARCH_SECONDS = argument("--seconds", type=float, default=60.0, metavar="N", help="how long to search (60)")
SEARCH_SEED = argument("--seed", type=int, default=0, metavar="N", help="seed of the random workloads (0)")
RANK = argument("--rank", type=int, metavar="N", help="the engine's number, if several run")
PIECE = argument("--piece", type=int, metavar="N", help="the piece of a stream with gaps (the last one)")
REPLAY = argument("--replay", metavar="ENDPOINT", help="for KV events: the endpoint to ask for missing batches")
SETTING = (
    argument("--blocks", dest="num_blocks", type=int, metavar="N", help="blocks in the pool (65,536)"),
    argument("--block-size", type=int, metavar="N", help="tokens of a block (16)"),
    argument("--model", metavar="CONFIG", help="a model's config.json, for its KV-cache groups"),
    argument("--gib", type=float, metavar="N", help="memory for KV, in GiB, instead of --blocks; needs --model"),
    argument("--kv-bytes-per-token", type=float, metavar="N", help="for a model whose config.json is not understood"),
    argument("--edition", metavar="NAME", help="whose scheduler serves the prompts (vllm)"),
    argument("--max-num-seqs", type=int, metavar="N", help="most requests that run at once (256)"),
    argument("--max-num-batched-tokens", type=int, metavar="N", help="most tokens of a step (8192)"),
    argument("--replicas", dest="num_replicas", type=int, metavar="N", help="engines that share the prompts (1)"),
    argument(
        "--routing",
        choices=("recorded", "round_robin", "sticky", "prefix"),
        help="which replica serves a prompt: the file's, the next, its session's, or the one that caches most of it",
    ),
)
"""The setting in which the doctor runs prompts."""
