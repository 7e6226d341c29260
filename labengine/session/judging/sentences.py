"""The sentences of a verdict: which slot was misread, what differs by how much, and what that means."""

from __future__ import annotations

from labengine.record.violation import Violation
from labengine.record.wording import readable
from labengine.session.judging.measured import Figures
from labengine.session.judging.run import JudgedRun

Misreads = tuple[tuple[Violation, ...], tuple[Violation, ...]]
Names = tuple[str, str]


def own_misreads(run: JudgedRun, misreads: tuple[Violation, ...]) -> tuple[Violation, ...]:
    """Return the misreads of the judged request."""
    return tuple(found for found in misreads if run.request_id in found.request_ids)


def misread_sentence(misreads: Misreads, names: Names) -> str:
    """Return slot, step and event of each run's first misread."""
    found = [f"in {name}, {_first(own)}" for name, own in zip(names, misreads, strict=True) if own]
    return f"{'; and '.join(found)}."


def _first(misreads: tuple[Violation, ...]) -> str:
    first = misreads[0]
    event = "" if first.first_event is None else f", since event {first.first_event}"
    number = "" if len(misreads) == 1 else f", the first of {len(misreads)} misreads"
    return f"{first.message} (step {first.step}{event}{number})"


def difference_before_sentence(misreads: Misreads, steps: tuple[int, int]) -> str:
    """Return a sentence if every misread came after these steps of the first differing token; else an empty string."""
    pairs = [(found.step, step) for own, step in zip(misreads, steps, strict=True) for found in own]
    if all(misread is not None and misread > step for misread, step in pairs):
        return " The first differing token came before that: it is due to rounding."
    return ""


def chain_sentence(runs: tuple[JudgedRun, JudgedRun], misreads: Misreads, names: Names) -> str:
    """Return a sentence per run in which another request misread, because the judged one may have hit its KV."""
    return "".join(
        f" In {name}, {_first(found)}: the KV it computed from then on does not match its tokens."
        for name, run, found in zip(names, runs, misreads, strict=True)
        if found and not own_misreads(run, found)
    )


def unseen_sentence(figures: Figures, names: Names) -> str:
    """Return which KV is wrong although no step planned to read other tokens' slots."""
    layer = figures.first_far_layer or 0
    far = figures.layers[layer]
    text = (
        f"both runs' plans are right, but K or V of position {far.position} differ in layer {layer} by "
        f"{far.relative:.2g} of a vector's length, where rounding stays below {figures.limit:g}."
    )
    wrong = [name for name, far in zip(names, figures.distances or (), strict=False) if far > figures.limit]
    whose = f"The KV of {' and of '.join(wrong)} does not match" if wrong else "The KV of both runs matches"
    return f"{text} {whose} the request computed by itself: look below the plan, at the runner and its kernels."


def equal_sentence(figures: Figures) -> str:
    """Return a sentence that says whether equal tokens come from equal bits."""
    if figures.is_bitwise_equal:
        positions = f"{figures.num_positions:,} positions"
        return f"bit for bit: {figures.num_tokens:,} tokens, their logits, and K and V of {positions}."
    return (
        f"the {figures.num_tokens:,} tokens are equal, but the bits are not: {_differences(figures)}. "
        "No request has read KV of other tokens: this is rounding, and no tie was narrow enough to change a token."
    )


def rounding_sentence(figures: Figures, names: Names) -> str:
    """Return the first differing token, and why it is due to rounding."""
    margin = figures.margin
    assert margin is not None
    margins = " and ".join(f"by {value:.3g} in {name}" for name, value in zip(names, margin.margins, strict=True))
    return (
        f"same content. {token_sentence(figures, names)} Neither run has read KV of other tokens; "
        f"{_differences(figures)}. "
        f"At that token the two highest logits differ {margins}, and the logits of the runs by up to "
        f"{margin.logit_difference:.3g}: rounding decides such a tie."
    )


def token_sentence(figures: Figures, names: Names) -> str:
    """Return the first differing token of both runs; empty without one."""
    margin = figures.margin
    if margin is None:
        return "The sampled tokens are equal."
    one, other = (repr(readable(token, 24)) for token in margin.tokens)
    return f"The first differing token is at position {margin.position}: {one} in {names[0]}, {other} in {names[1]}."


def not_kv_sentence(figures: Figures, names: Names) -> str:
    """Return what is wrong beyond the KV: the logits or the sampler."""
    text = f"K and V of {figures.num_positions:,} positions agree. {token_sentence(figures, names)}"
    if figures.relative_logits > figures.limit:
        return (
            f"{text} The logits differ by {figures.relative_logits:.2g} of their spread, where rounding stays below "
            f"{figures.limit:g}: look at the code that turns the last layer into logits, and at the logits' rows."
        )
    return f"{text} A run did not take its highest logit, or equal logits gave different tokens: look at the sampler."


def _differences(figures: Figures) -> str:
    return (
        f"K and V of {figures.num_positions:,} positions differ by at most {figures.key_difference:.3g} and "
        f"{figures.value_difference:.3g}, the logits by {figures.logit_difference:.3g}"
    )
