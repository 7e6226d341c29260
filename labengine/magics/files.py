"""%lab save and open: a session taken along in a file, and one that somebody else has saved."""

from __future__ import annotations

from pathlib import Path

from labengine.magics.current_lab import CurrentLab
from labengine.magics.table import argument, command
from labengine.magics.words import display
from labengine.session.saved import trace as traces


@command(argument("path", metavar="FILE", help="a path; FILE.html makes a page"))
def save(current: CurrentLab, path: str) -> None:
    """Save the recording to FILE: every view of it opens again anywhere, without a model. FILE.html is a page."""
    target = Path(path)
    if target.suffix == ".html":
        current.recorded.export_html(target)
        print(f"{path}: one page that scrubs in any browser, with no network and no Python")
        return
    current.recorded.save(target)
    print(f"{path}, {target.stat().st_size / 1024:,.0f} KiB: %lab open {path}, or labengine.open({path!r})")


@command(
    argument("path", metavar="FILE", help="a path; FILE.html makes a page"),
    argument("--name", metavar="VARIABLE", help="what to call it (trace)"),
)
def open(current: CurrentLab, path: str, name: str = "trace") -> None:
    """Open what `save` has written, call it `trace`, and show it; there is no engine in it to step."""
    trace = current.open_trace(name, traces.open(path))
    print(f"{name}: {trace.summary()}")
    display(trace.show())
