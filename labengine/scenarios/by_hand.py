"""A scenario from a few values: parts that go wrong, parts that do not, and a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import FunctionType
from typing import Any, ClassVar

from labengine.config import ConfigError, checked_call, shown
from labengine.core.connector import Connector
from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.isolation.endings import OF_THE_USER, interrupts_named, said_of
from labengine.lab import Lab
from labengine.record.figures import counted
from labengine.record.violation import RULES
from labengine.scenarios.counts import num_rules
from labengine.scenarios.report import Conclusion
from labengine.scenarios.scenario import Column, Scenario
from labengine.session.history.inputs import BrokenStep, Input
from labengine.session.patch.override import parts_with

Act = Callable[[Lab], Any]


class HandMadeScenario(Scenario):
    """A scenario whose workload is a value and whose text is in its own class; see `hand_made`."""

    engine, breaks, kind = "a workload of yours", "", ""
    question: ClassVar[str] = "What does the workload lead to?"
    settings: ClassVar[Mapping[str, Any]] = {}

    def __init__(self) -> None:
        self.acts: Sequence[Act] = ()
        self.num_common = 0
        """Number of acts after which both columns have taken equally many steps: a comparison opens there."""
        self.lab_settings: Callable[[], Mapping[str, Any]] = dict
        self.wrong: Callable[[Mapping[str, int]], bool] | None = None
        self.more_figures: Callable[[Lab], Mapping[str, int]] = lambda lab: {}

    def settings_for(self, model: str) -> dict[str, Any]:
        """Return the settings; each lab gets a new connector."""
        return dict(self.lab_settings())

    def play(self, lab: Lab) -> None:
        """Do the acts until one raises."""
        for act in self.acts:
            if not _do(act, lab):
                return

    def opening(self, lab: Lab) -> None:
        """Do the acts up to the point where both sides can be compared."""
        for act in self.acts[: self.num_common]:
            _do(act, lab)

    def follow_up_acts(self) -> tuple[Act, ...]:
        """Return the remaining acts, which only one side completes."""
        return tuple(self.acts[self.num_common :])

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count broken rules, failed steps, unfinished requests, and costs."""
        assert lab.timeline is not None
        figures = counted(lab.timeline.events())
        return {
            "rules broken": num_rules(lab),
            "failed steps": sum(map(_is_failure, lab.session.inputs.done)),
            "requests not finished": sum(one.status != "finished" for one in lab.snapshot().requests.values()),
            "tokens found in the cache": figures.num_hit,
            "tokens computed": figures.num_computed,
            "peak of used blocks": lab.stats().peak_used_blocks,
            **self.more_figures(lab),
        }

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if rules are broken or steps failed, or as the scenario's `is_wrong` decides."""
        if self.wrong is not None:
            return self.wrong(measured)
        return bool(measured["rules broken"] or measured["failed steps"])

    def concluded(self, before: Mapping[str, int]) -> Conclusion:
        """Return the conclusion: the claim concerns the given parts, so their run decides."""
        if self.is_wrong(before):
            return Conclusion(answer="holds", reason="The given parts were run.")
        return Conclusion(answer="does not hold", reason="The given parts were run and did not go wrong.")

    def save(self, path: str | PathLike[str]) -> None:
        """Save the broken column's session with the source of its parts; `labengine.open` shows it anywhere."""
        with self.broken() as lab:
            lab.save(path)

    def note_rules(self) -> None:
        """Set seen_by to the rules broken in a play, or why_unseen if there are none."""
        with self.broken() as lab:
            rules = dict.fromkeys(violation.rule for violation in lab.violations)
            has_raised = lab.crash is not None
        own_class = type(self)
        own_class.seen_by = tuple(rule for rule in rules if rule in RULES)
        own_class.why_unseen = (
            "a step raises and is rolled back" if has_raised else "the engine only decides differently"
        )

    def find_common(self) -> None:
        """Set num_common by playing both columns, act by act."""
        with self.lab(self.columns[0].name) as one, self.lab(self.columns[1].name) as other:
            self.num_common = 0
            for act in self.acts:
                for lab in (one, other):
                    _do(act, lab)
                if one.snapshot().step != other.snapshot().step:
                    return
                self.num_common += 1


def hand_made(
    id: str, title: str, claim: str, columns: tuple[Column, Column], roles: tuple[str, str]
) -> HandMadeScenario:
    """Return a scenario with this text but without a workload: the caller sets `acts` and `lab_settings`."""
    text = {"sentences": (claim,), "claim": claim, "breaks": claim}
    own_class = type(
        "HandMade", (HandMadeScenario,), {"id": id, "title": title, "columns": columns, "roles": roles, **text}
    )
    made: HandMadeScenario = own_class()
    return made


def scenario(
    broken: str | Parts | type,
    fixed: str | Parts | type = "labengine",
    *,
    play: Act | Sequence[Act],
    claim: str,
    title: str = "A workload of mine",
    is_wrong: Callable[[Mapping[str, int]], bool] | None = None,
    **settings: Any,
) -> HandMadeScenario:
    """Return a scenario: a workload that goes wrong with one set of parts and not with another.

    broken, fixed: an edition's name, Parts, or a class that replaces a part of the edition `labengine` (or a function
    named like a seam). play(lab): adds requests and takes steps; or a list of such functions. A comparison opens after
    the functions that both sides can do alike. claim: one sentence. is_wrong(measured): judges the figures of
    `measure`; by default broken rules and failed steps are wrong. settings: keywords of Lab; external may be a
    connector's class or a function that makes one, because each lab needs its own. Raises ConfigError for a scenario
    that cannot be played.
    """
    acts = tuple(play) if isinstance(play, (list, tuple)) else (play,)
    for act in acts:
        checked_call("play", act, "lab")
    if not isinstance(claim, str) or not claim:
        raise ConfigError(f"claim must be a sentence that says what goes wrong, got {shown(claim)}")
    columns = (_column("broken", broken, claim), _column("fixed", fixed, "The same without it."))
    made = hand_made("mine", title, claim, columns, ("what goes wrong", "what does not"))
    made.acts, made.wrong = acts, is_wrong
    if isinstance(settings.get("external"), Connector):
        raise ConfigError(
            f"external={shown(settings['external'])} is a connector, which serves one engine only: pass its class or a "
            "function that makes one"
        )
    made.lab_settings = lambda: {name: _made(value) for name, value in settings.items()}
    made.lab("fixed").close()  # refuse wrong settings now
    made.note_rules()
    made.find_common()
    return made


def _do(act: Act, lab: Lab) -> bool:
    """Do an act; return False if a part raised in it. Raises ConfigError if it ends the process otherwise."""
    with interrupts_named():
        try:
            act(lab)
        except OF_THE_USER:
            raise
        except BaseException as error:
            if lab.crash is not None:
                return False
            if isinstance(error, Exception):
                raise
            raise ConfigError(f"the workload cannot be played: {said_of(error)}") from error
    return True


def _made(value: object) -> object:
    """Return a setting, or the value it makes if it is a maker."""
    return value() if isinstance(value, (type, FunctionType)) else value


def _is_failure(known: Input) -> bool:
    """Return True for a step that failed by itself."""
    return isinstance(known, BrokenStep) and known.failed is not None and known.ends_at is None


def _column(name: str, wanted: str | Parts | type, says: str) -> Column:
    if isinstance(wanted, str):
        return Column(wanted, name=name, says=says)
    return Column(LABENGINE.name, parts_with(wanted, LABENGINE, ("full", "sliding_window")), name=name, says=says)
