"""The reference: every public name of labengine, by subject, from its docstring."""

from __future__ import annotations

from collections.abc import Iterator

from labengine.events import EVENT_KINDS, Event

SUBJECTS = {
    "Labs and runs": (
        "Lab",
        "simulate",
        "compare",
        "vary",
        "open",
        "drive",
        "Patch",
        "attach",
        "attach_ranks",
        "kv_events",
        "conform",
        "doctor",
        "judge",
        "find",
        "model_path",
        "SamplingParams",
        "GroupSpec",
    ),
    "Bugs and exercises": ("bug", "bugs", "scenario", "exercise", "progress"),
    "Scheduler": (
        "Parts",
        "Scheduler",
        "TokenBudgetScheduler",
        "PrefillFirstScheduler",
        "WaitingQueue",
        "PriorityQueue",
        "Drafts",
        "Forks",
        "BeamSearches",
        "HandOver",
    ),
    "Cache": (
        "KVCacheManager",
        "BlockPool",
        "FreeQueue",
        "KVCacheGroup",
        "FullAttentionGroup",
        "SlidingWindowGroup",
        "StateGroup",
        "HashChain",
        "PrefixLookup",
        "MergePolicy",
        "LateMerge",
        "KeepDuplicates",
    ),
    "Speculation": ("NGram", "DraftModel", "FixedDrafts"),
    "External tier": ("Connector", "ExternalLoads", "HostStore", "DiskStore"),
    "Runners": ("ModelRunner", "StaticRunner", "StaticStep", "StaticTorch"),
    "Errors and the notebook": ("ConfigError", "TraceError", "load_ipython_extension", "unload_ipython_extension"),
}
"""Each page's names, in order."""

HEAD = """\
# Reference

These pages list labengine's public names with their docstrings. `import labengine` loads none of their modules; each is
loaded at its first use. Hooks deliver [events](events.md). [The contract](../contract.md) defines the formats that
other tools may rely on, and [the glossary](../glossary.md) explains the words of the screen.

"""


def file_of(subject: str) -> str:
    """Return the file of a subject's page."""
    return f"{subject.lower().replace(' ', '_')}.md"


def pages() -> dict[str, str]:
    """Return the reference's pages in Markdown, by file."""
    made = {file_of(subject): _page(subject, names) for subject, names in SUBJECTS.items()}
    files = dict.fromkeys(kind.__module__ for kind in (Event, *EVENT_KINDS))
    made["events.md"] = "# Events\n\n" + "\n".join(
        f"::: {file}\n    options:\n      show_root_heading: false\n" for file in files
    )
    return {"index.md": HEAD + "".join(_index()), **made}


def _page(subject: str, names: tuple[str, ...]) -> str:
    return f"# {subject}\n\n" + "\n".join(f"::: labengine.{name}\n" for name in names)


def _index() -> Iterator[str]:
    """Yield a line for each subject, with links to its names."""
    for subject, names in SUBJECTS.items():
        file = file_of(subject)
        links = ", ".join(f"[`{name}`]({file}#labengine.{name})" for name in names)
        yield f"* **[{subject}]({file})**: {links}\n"
