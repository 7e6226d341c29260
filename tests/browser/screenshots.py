"""Screenshots to look at, which no test depends on: `make test-all` keeps them, and `make test PICTURES=1`."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import Locator, Page

ARE_KEPT = bool(os.environ.get("PICTURES"))


def keep(of: Page | Locator, path: Path) -> None:
    """Save a picture, if pictures are kept."""
    if ARE_KEPT:
        path.parent.mkdir(parents=True, exist_ok=True)
        of.screenshot(path=path)
