"""judge: compare the same request in two runs: wrong content in the KV cache, other rounding, or equal."""

from __future__ import annotations

from contextlib import closing

from labengine.config import ConfigError
from labengine.isolation.endings import interrupts_named, is_of_a_part, said_of
from labengine.session.compare.sides import checked_names
from labengine.session.judging.measured import Evidence, Figures, evidence_of
from labengine.session.judging.repetition import Repetition
from labengine.session.judging.run import JudgedRun, refuse_unlike, run_of
from labengine.session.judging.sentences import (
    Misreads,
    Names,
    chain_sentence,
    difference_before_sentence,
    equal_sentence,
    misread_sentence,
    not_kv_sentence,
    own_misreads,
    rounding_sentence,
    unseen_sentence,
)
from labengine.session.judging.verdict import Kind, RunVerdict
from labengine.session.looking import Looking

Pair = tuple[JudgedRun, JudgedRun]


def judge(
    run_a: Looking | tuple[Looking, int | str],
    run_b: Looking | tuple[Looking, int | str],
    *,
    request: int | str = 0,
    names: tuple[str, str] | None = None,
) -> RunVerdict:
    """Return a verdict on whether and why two runs of the same request differ: see RunVerdict.

    A run is (lab, request), by id or letter; a lab alone stands for its `request`. judge((lab, "A"), (lab, "B"))
    compares a cold request with a warm one, judge(lab_1, lab_16) the same request in two batches. names: of the runs,
    for messages and pictures.
    Both runs are repeated on separate labs; what each token reads and computes is compared up to the first difference.
    This takes the time and memory of both runs again. The labs do not change.
    Raises ConfigError for runs of different requests, or a run that cannot be repeated; KeyError for an unknown
    request.
    """
    runs = run_of(run_a, request), run_of(run_b, request)
    refuse_unlike(*runs)
    its_names = checked_names(names) or _names(runs)
    with interrupts_named():
        try:
            return _judged(runs, its_names)
        except BaseException as error:  # a part that raises SystemExit must not end a script as if all were well
            if isinstance(error, Exception) or not is_of_a_part(error):
                raise
            raise ConfigError(f"a run cannot be repeated: {said_of(error)}") from error


def _judged(runs: Pair, its_names: Names) -> RunVerdict:
    if runs[0].is_simulated:
        return _by_the_oracle(runs, _misreads(runs), its_names, "the simulated model has no weights")
    try:
        evidence = evidence_of(runs)
    except ConfigError:
        known = runs[0].misreads or (), runs[1].misreads or ()
        if not any(_own(runs, known)):
            raise
        return _by_the_oracle(runs, known, its_names, "a run cannot be repeated")
    return _ruling(runs, evidence, its_names)


def _names(runs: Pair) -> Names:
    if runs[0].session is runs[1].session:
        return runs[0].request, runs[1].request
    return "the first run", "the second run"


def _own(runs: Pair, misreads: Misreads) -> Misreads:
    return own_misreads(runs[0], misreads[0]), own_misreads(runs[1], misreads[1])


def _misreads(runs: Pair) -> Misreads:
    """Return each run's misreads; repeat an unchecked run with the checks."""
    found = []
    for run in runs:
        known = run.misreads
        if known is None:
            with closing(Repetition(run, len(run.token_ids))) as again:
                known = again.misreads()
        found.append(known)
    return found[0], found[1]


def _by_the_oracle(runs: Pair, misreads: Misreads, names: Names, why: str) -> RunVerdict:
    """Return a verdict without figures. why: the reason that they are missing."""
    own = _own(runs, misreads)
    if any(own):
        return RunVerdict("wrong content", f"{misread_sentence(own, names)} No figures: {why}.", names, own, None)
    text = f"neither run has read KV of other tokens. Rounding cannot be judged: {why}."
    return RunVerdict("equal", text + chain_sentence(runs, misreads, names), names, own, None)


def _ruling(runs: Pair, evidence: Evidence, names: Names) -> RunVerdict:
    own = _own(runs, evidence.misreads)
    kind = _kind(evidence.figures, any(own))
    return RunVerdict(kind, _message(kind, runs, evidence, names, own), names, own, evidence.figures)


def _kind(figures: Figures, has_misread: bool) -> Kind:
    if has_misread or figures.first_far_layer is not None:
        return "wrong content"
    if figures.relative_logits > figures.limit:
        return "not the KV"
    if figures.margin is None:
        return "equal"
    return "other rounding" if figures.logit_difference and figures.margin.is_possible else "not the KV"


def _message(kind: Kind, runs: Pair, evidence: Evidence, names: Names, own: Misreads) -> str:
    figures = evidence.figures
    match kind:
        case "wrong content" if any(own):
            before = "" if figures.margin is None else difference_before_sentence(own, evidence.steps)
            return misread_sentence(own, names) + before
        case "wrong content":
            return unseen_sentence(figures, names) + chain_sentence(runs, evidence.misreads, names)
        case "other rounding":
            return rounding_sentence(figures, names)
        case "equal":
            return equal_sentence(figures)
        case "not the KV":
            return not_kv_sentence(figures, names)
