"""Types of command arguments, and the options that several commands share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from labengine.commands import argument
from labengine.config import shown
from labengine.core.editions import EDITIONS
from labengine.core.proposer import NGram, Proposer
from labengine.engine.draft_model import DraftModel
from labengine.magics.table import LineReader
from labengine.record.wording import request_name

if TYPE_CHECKING:
    from collections.abc import Iterable


MAX_DIGITS = 18
"""Maximum digits of a number in a command: Python refuses to parse 4,301."""


def whole_number(text: str) -> int | None:
    """Convert a text to a number >= 0; return None for other texts and for more than MAX_DIGITS digits."""
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None


def positive_int(text: str) -> int:
    """Convert an argument to an integer >= 1. Raises argparse's error for other texts."""
    number = whole_number(text)
    if not number:
        limit = f" of at most {MAX_DIGITS} digits" if len(text) > MAX_DIGITS else ""
        raise argparse.ArgumentTypeError(f"must be a positive integer{limit}, got {shown(text)}")
    return number


def block_count(text: str) -> int | str:
    """Convert an argument to an integer, or return "auto"."""
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number or auto, got {shown(text)}") from None


CHECK_MODES = ("on", "stop", "off")


def check_mode(text: str) -> bool | str:
    """Convert an argument to a value of Lab(check=...): "on", "off", or "stop" for runs that end at a violation."""
    if text not in CHECK_MODES:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(CHECK_MODES)}, got {text!r}")
    return {"on": True, "off": False}.get(text, text)


def proposer_of(guesser: str, num_drafts: int | None) -> Proposer:
    """Return the proposer for `--speculation`: "ngram", "layers=8", or a model. num_drafts: None for the default."""
    if guesser == "ngram":
        return NGram(num_drafts or NGram.num_drafts)
    num_drafts = num_drafts or DraftModel.num_drafts
    name, is_layers, num_layers = guesser.partition("=")
    if not is_layers:
        return DraftModel(num_drafts, model=guesser)
    number = whole_number(num_layers)
    if name != "layers" or number is None:
        raise UsageError(f"--speculation must be ngram, layers=N (such as layers=8) or a model, got {shown(guesser)}")
    return DraftModel(num_drafts, num_layers=number)


def step_or_crash(text: str) -> int | str:
    """Convert an argument to the number of a step, or return "crash"."""
    number = whole_number(text)
    if text == "crash":
        return text
    if number is None:
        raise argparse.ArgumentTypeError(f"must be a step number or crash, got {shown(text)}")
    return number


def step_or_event(text: str) -> int | str | tuple[int, int]:
    """Convert an argument to a moment: a step, STEP:EVENT (an event inside it, counted from 0), or "crash"."""
    if text == "crash":
        return text
    before, colon, after = text.partition(":")
    step, event = whole_number(before), whole_number(after)
    if step is None or (colon and event is None):
        raise argparse.ArgumentTypeError(
            f"must be a step, such as 2, an event inside one, such as 2:5, or crash, got {shown(text)}"
        )
    return step if event is None else (step, event)


def request_id_of(text: str, known: Iterable[int]) -> int:
    """Return the id of a request, given its id (0, 1 ...) or name (A, B ...). Raises UsageError if it is unknown."""
    names = {request_name(request_id): request_id for request_id in known}
    number = whole_number(text)
    request_id = names.get(text.upper(), -1) if number is None else number
    if request_id not in names.values():
        raise UsageError(f"no request {text[:80]}: the lab has {', '.join(names) or 'no requests yet'}")
    return request_id


SAMPLING = (
    argument("--max-tokens", type=int, metavar="N", help="maximum number of tokens to generate"),
    argument("--copies", type=positive_int, metavar="N", help="number of identical requests to add"),
    argument("--priority", type=int, metavar="N", help="smaller is more urgent, for --policy priority"),
    argument(
        "--n", "-n", type=positive_int, metavar="N", help="number of answers to the prompt, which share its blocks"
    ),
    argument("--beams", type=positive_int, metavar="N", help="number of beams in a search for the likeliest text"),
    argument("--temperature", type=float, metavar="T", help="0 (the default) takes the likeliest token"),
    argument("--top-k", type=int, metavar="K", help="sample from the K likeliest tokens"),
    argument(
        "--top-p", type=float, metavar="P", help="sample from the likeliest tokens with this share of probability"
    ),
    argument("--seed", type=int, metavar="SEED", help="seed of this request's sampling"),
    argument("--ignore-eos", action="store_true", help="do not stop at the model's end-of-text token"),
    argument(
        "--skip-reading-prefix-cache", action="store_true", help="do not look this request up in the prefix cache"
    ),
    argument("--chat", action="store_true", help="wrap the text as a user message"),
)

NUM_STEPS = argument("num_steps", nargs="?", type=positive_int, metavar="N", help="how many")

OF_AN_ENGINE = (
    argument("--edition", offers=tuple(EDITIONS), metavar="NAME", help="the edition that decides"),
    argument("--blocks", dest="num_blocks", type=block_count, metavar="N", help="blocks in the pool, or auto"),
    argument("--block-size", type=int, metavar="TOKENS", help="tokens in a block"),
    argument("--max-num-seqs", type=int, metavar="N", help="maximum number of running requests"),
    argument("--max-num-batched-tokens", type=int, metavar="N", help="maximum number of tokens computed in a step"),
)
"""Settings that a fork may change."""

AT = argument(
    "--at", type=step_or_event, metavar="MOMENT", help="a picture of a step's end (2), an event (2:5) or the crash"
)

PROMPT = LineReader("%%prompt", SAMPLING)
"""Reader of a %%prompt cell's first line."""
