"""What the checks have found while a command was at work, and where a step has failed, as the magics tell it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from IPython.core.error import UsageError

from labengine.lab import Lab
from labengine.magics.current_lab import CurrentLab
from labengine.magics.words import place_of
from labengine.session.history.crash import Crash
from labengine.session.violation_warnings import ViolationWarning
from labengine.violation import Violation


@contextmanager
def told_checks(current: CurrentLab) -> Iterator[None]:
    """Print what was found broken inside. UsageError in place of an exception that a part has raised in a step."""
    labs = current.labs
    known, crashes = [len(lab.violations) for lab in labs], [lab.crash for lab in labs]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ViolationWarning)  # the line below says it all
            yield
    except Exception as error:
        if (crash := _new_crash(labs, crashes)) is not None:
            raise UsageError(
                f"{crash} ({place_of(error)}). The step was taken back; %lab goto crash looks at the moment before "
                f"that, and lab.crash has the exception"
            ) from error
        raise
    finally:
        for lab, before in zip(labs, known, strict=True):
            if found := lab.violations[before:]:
                print(violation_line(found))


def violation_line(found: Sequence[Violation]) -> str:
    """How many rules are broken, and how to ask about the first: "4 violations (partition, held) ..."."""
    rules = ", ".join(dict.fromkeys(violation.rule for violation in found))
    number = "1 violation" if len(found) == 1 else f"{len(found)} violations"
    event = found[0].first_event
    ask = "" if event is None else f"; %lab why event {event} tells how it began"
    return f"{number} ({rules}): {found[0].message}{ask}"


def _new_crash(labs: Sequence[Lab], before: Sequence[Crash | None]) -> Crash | None:
    pairs = zip(labs, before, strict=True)
    return next((lab.crash for lab, known in pairs if lab.crash is not None and lab.crash is not known), None)
