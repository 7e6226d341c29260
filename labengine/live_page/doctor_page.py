"""The Python half of the doctor's page: examines a file and posts the report as HTML."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from labengine.commands import SETTING, as_typed
from labengine.config import ConfigError, shown
from labengine.prefix_doctor.asked import Asked
from labengine.prefix_doctor.doctor import Pricing, diagnosis_of
from labengine.prefix_doctor.report.notebook import notebook_html_of
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic
from labengine.prefix_doctor.traffic.sources import MAX_SECONDS, FileTraffic, opened
from labengine.record.files.codec import dumps
from labengine.record.files.file_access import MAX_BYTES, Limits
from labengine.record.wording import readable

Post = Callable[[str, str, list[bytes]], object]
"""post(kind, content as JSON, buffers) to the page. Kinds: progress, report, refused."""

MAX_REFUSAL = 1_000
"""Most characters of an error message."""


class DoctorPage:
    """The page, which examines one file after another."""

    def __init__(self, post: Post) -> None:
        self._post = post

    def receive(self, message: str) -> None:
        """Examine a file, and post the report or a sentence on why it cannot be examined.

        message: JSON with the file's place, and under `asked` the form's fields: options of the command, and "curves".
        """
        content = json.loads(message)
        path = Path(content["place"])
        try:
            html = self._report(path, content["asked"])
        except Exception as error:  # report any error of a file in the page
            self._say("refused", message=readable(_sentence(error).replace(str(path), path.name), MAX_REFUSAL))
        else:
            self._say("report", html=html)

    def _report(self, path: Path, asked: dict[str, str]) -> str:
        has_curves = bool(asked.pop("curves", ""))
        given = {option: text for option, text in asked.items() if text}
        settings = Asked(
            num_blocks=_whole("--blocks", given),
            block_size=_whole("--block-size", given),
            num_replicas=_whole("--replicas", given),
        )
        command = ["labengine", "doctor", path.name, *(word for pair in given.items() for word in pair)]
        found = opened(path, None, Limits(path, MAX_BYTES, MAX_SECONDS))
        if isinstance(found, FileTraffic):
            found = self._with_progress(found)
        pricing, typed = Pricing(given.get("--clock")), shlex.join(command)
        return notebook_html_of(diagnosis_of(found, settings, pricing, typed, has_curves=has_curves).report)

    def _with_progress(self, traffic: FileTraffic) -> Traffic:
        """Return traffic that tells the page how much of the file each reading has read."""

        def read() -> Iterator[Prompt]:
            before = -1
            for prompt in traffic:
                yield prompt
                if (share := int(100 * traffic.share_read())) != before:
                    self._say("progress", words=f"Reading and running the prompts: {share} %")
                    before = share
            self._say("progress", words="Playing the cures …")

        return replace(traffic, read=read)

    def _say(self, kind: str, **content: str) -> None:
        self._post(kind, dumps(content).decode(), [])


def _whole(option: str, given: dict[str, str]) -> int | None:
    try:
        return int(given[option]) if option in given else None
    except ValueError:
        raise ConfigError(f"{option} must be a whole number, got {shown(given[option])}") from None


def _sentence(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return as_typed(str(error), SETTING)
    if isinstance(error, MemoryError):
        return "the file needs more memory than a page has: run the command on your machine"
    return f"the doctor failed on this file ({type(error).__name__}: {error})"
