"""What a run has come to, in a few figures."""

from __future__ import annotations

from typing import Any

from labengine.record.figures import counted


def outcome_of(name: str, lab: Any) -> dict[str, Any]:
    """Return a finished run's figures by name, and what went wrong in one line (empty for nothing), as JSON types."""
    snapshot, run = lab.snapshot(), counted(lab.timeline.events())
    figures = {
        "peak": lab.stats().peak_used_blocks,
        "used": snapshot.num_used_blocks,
        "lost": len(snapshot.lost_blocks),
        "computed": run.num_computed,
        "found": run.num_hit,
        "preemptions": run.num_preemptions,
        "steps": snapshot.step,
    }
    return {"name": name, "figures": figures, "wrong": _wrong(lab)}


def _wrong(lab: Any) -> str:
    rules = sorted({violation.rule for violation in lab.violations})
    broken = f"broken: {', '.join(rules)}" if rules else ""
    return "; ".join(filter(None, [broken, "" if lab.crash is None else str(lab.crash)]))
