"""The dashboards of a notebook while their engines run: what each has painted last."""

from __future__ import annotations

from playwright.sync_api import Locator

from browser.frames import painted_data
from browser.lab_page import LabPage


def dashboard(lab: LabPage, which: int = 0) -> Locator:
    return lab.page.locator(".labengine-dashboard").nth(which)


def painted(lab: LabPage, name: str, which: int = 0) -> str:
    """What a data attribute says after the next paint; the dashboard is scrolled into sight."""
    return str(painted_data(dashboard(lab, which), name) or "")


def wait_painted(lab: LabPage, name: str, value: str, which: int = 0) -> None:
    lab.wait_for(f"data-{name} = {value}", lambda: painted(lab, name, which) == value)
