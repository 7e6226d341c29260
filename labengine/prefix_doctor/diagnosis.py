"""The result of doctor(): the report, and the traffic, setting or recording that it is about."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

from labengine.config import ConfigError, checked_int, checked_path
from labengine.lab import Lab
from labengine.prefix_doctor.causes.finding import Finding
from labengine.prefix_doctor.look_ups.look_up import LookUp
from labengine.prefix_doctor.look_ups.sums import Sums
from labengine.prefix_doctor.play.seen_happen import lab_of
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.report.notebook import notebook_html_of
from labengine.prefix_doctor.report.page import page_of
from labengine.prefix_doctor.report.report import Report
from labengine.prefix_doctor.report.text import text_of
from labengine.prefix_doctor.traffic.prompt import Traffic
from labengine.record.wording import request_name
from labengine.system.atomic_write import write_atomically


def written(path: str | PathLike[str], data: bytes) -> None:
    """Write a file. Raises ConfigError if that is impossible."""
    try:
        write_atomically(checked_path("path", path), data)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Why prompts hit or missed the prefix cache, what the misses cost, and what would mend them.

    traffic, setting: what the cures were played with; None for a recording that cannot be repeated.
    """

    report: Report
    traffic: Traffic | None = None
    setting: Setting | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The causes of misses, costliest first."""
        return self.report.findings

    @property
    def look_ups(self) -> tuple[LookUp, ...]:
        """Each admission of a recorded request, with its sentence; empty for a file of prompts."""
        return self.report.look_ups

    @property
    def sums(self) -> Sums:
        """The prompts' tokens: found, and missed by cause."""
        return self.report.sums

    def of(self, request: int | str) -> tuple[LookUp, ...]:
        """Return the look-ups of one request, by its id, its letter or the engine's name.

        Raises ConfigError for a request without one.
        """
        found = tuple(
            one for one in self.look_ups if request in (one.request_id, one.name, request_name(one.request_id))
        )
        if not found:
            raise ConfigError(f"request {request!r} was not admitted in this recording")
        return found

    def lab(self, number: int = 1) -> Lab:
        """Return a lab with the few prompts that show a finding, queued and ready to be stepped.

        number: of the finding, from 1. Raises ConfigError for an unknown finding, or one that needs more than a lab.
        """
        number = checked_int("number", number, 1)
        if number > len(self.findings):
            raise ConfigError(f"there is no finding {number}: the report has {len(self.findings)}")
        if self.traffic is None or self.setting is None:
            raise ConfigError("these requests cannot be repeated in a lab; the notes say why")
        return lab_of(self.findings[number - 1], self.traffic, self.setting)

    def save_html(self, path: str | PathLike[str]) -> None:
        """Write the report as one page that opens from disk. Raises ConfigError if it cannot be written."""
        written(path, page_of(self.report).encode())

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, as docs/doctor_json.md describes them."""
        return self.report.to_dict()

    def __repr__(self) -> str:
        return text_of(self.report)

    def _repr_html_(self) -> str:
        return notebook_html_of(self.report)
