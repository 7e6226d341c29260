"""The upstream report behind a scenario: facts for a version and a date, and the conclusion on its claim."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Kind = Literal["issue", "pull request", "review", "commit"]
State = Literal["open", "closed", "merged", "closed, not merged", "on a branch", "on the main branch"]
Answer = Literal["holds", "holds in part", "is not shown", "does not hold"]
Fact = tuple[str, str]
"""A label and a sentence for a page's list."""

_FOLDERS: Mapping[Kind, str] = {"issue": "issues", "pull request": "pull", "review": "pull", "commit": "commit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A thread or commit of another project. Every field states a fact about that project.

    repository: owner/name on GitHub. number: the thread's number, or a commit's hash. title: its title there. state:
    its state on the day `as_of`, an ISO date: the newest day covered by the copy we read. seen_in: the versions known
    to have the defect, beginning with the first one if known. mended_in: the version and the code that fixed it, not
    the pull request at hand; empty if none was known on that day. needs: conditions of the defect: flags, connector,
    batches in flight, page size.
    """

    repository: str
    kind: Kind
    number: str
    title: str
    state: State
    as_of: str
    seen_in: str
    mended_in: str = ""
    needs: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """URL of the thread or commit; a review's is its pull request's."""
        return f"https://github.com/{self.repository}/{_FOLDERS[self.kind]}/{self.number}"

    @property
    def name(self) -> str:
        """Repository, kind and number: 'vllm-project/vllm issue 30931'."""
        where = "review of pull request" if self.kind == "review" else self.kind
        return f"{self.repository} {where} {self.number}"

    def facts(self) -> Iterator[Fact]:
        """Yield the known facts of the report, each as a label and a sentence."""
        yield "Report", f"{self.name}, “{self.title}”: {self.state} as of {self.as_of}."
        yield "Seen in", f"{self.seen_in}."
        yield "Fixed in", f"{self.mended_in or f'no version as of {self.as_of}'}."
        if self.needs:
            yield "Needs", f"{'; '.join(self.needs)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePassage:
    """A line of upstream's code at a version, as evidence for a page; `tools/upstream_facts.py` checks it.

    version: package and version, or repository and commit: 'vllm 0.31.0', 'nano-vllm bb823b3'. line: counted from 1; 0
    if the file must not contain the text. text: a part of the line. says: the consequence, in one sentence.
    """

    version: str
    file: str
    line: int
    text: str
    says: str

    @property
    def source(self) -> str:
        """Version, file and line: 'vllm 0.31.0, vllm/v1/core/kv_cache_utils.py:584'."""
        return f"{self.version}, {self.file}{f':{self.line}' if self.line else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPassage:
    """A statement of a thread, in our words. source: repository and number: 'vllm-project/vllm 42289'."""

    source: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRun:
    """A run of the scenario's requests on upstream's own code.

    version: package and version, or repository and commit. part: the executed code: 'BlockManager and Scheduler'.
    command: repeats the run in a clone of labengine. rows: per column, figures by name.
    """

    version: str
    part: str
    command: str
    rows: Mapping[str, Mapping[str, int]]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types."""
        rows = {name: dict(figures) for name, figures in self.rows.items()}
        return {"version": self.version, "part": self.part, "command": self.command, "rows": rows}

    @property
    def sentence(self) -> str:
        """Version, part and figures, in one sentence."""
        columns = (
            f"{name}: {', '.join(f'{number} {what}' for what, number in figures.items())}"
            for name, figures in self.rows.items()
        )
        return f"{self.version}, {self.part}: {'; '.join(columns)} ({self.command})."


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The conclusion on the report's claim. It never follows from labengine's own override.

    reason: one or two sentences; if the claim holds in part, they name the part. runs, passages: the evidence in
    upstream's code and threads. A claim holds, or holds in part, only with evidence.
    """

    answer: Answer
    reason: str
    runs: tuple[UpstreamRun, ...] = ()
    passages: tuple[CodePassage | ThreadPassage, ...] = ()

    @property
    def sentence(self) -> str:
        """The answer and its reason."""
        return f"The claim {self.answer}. {self.reason}"

    @property
    def upstream(self) -> str:
        """The evidence in upstream's own code, in sentences."""
        if self.runs:
            return " ".join(run.sentence for run in self.runs)
        has_code = any(isinstance(passage, CodePassage) for passage in self.passages)
        return "Read at the lines below; not run here." if has_code else "Not run here."

    def facts(self) -> Iterator[Fact]:
        """Yield the upstream evidence and each passage, as a label and a sentence."""
        yield "Upstream's own code", self.upstream
        for passage in self.passages:
            yield "Source", f"{passage.source}: {passage.says}"


def recorded_runs(id: str) -> tuple[UpstreamRun, ...]:
    """Return the recorded runs of a scenario on upstream's code; `tests/record_scenarios.py` records them again."""
    return tuple(UpstreamRun(**run) for run in _recorded().get(id, ()))


@cache
def _recorded() -> Mapping[str, list[dict[str, Any]]]:
    runs: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("upstream_runs.json").read_text())
    return runs


UNKNOWN = Conclusion(answer="is not shown", reason="Upstream's code was not compared.")
"""The conclusion of a scenario that does not state one."""
