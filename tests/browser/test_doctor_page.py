"""The doctor's page from disk, offline: hostile text is text, rows open and filter, pictures follow the theme."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from browser.chromium import new_context
from browser.page_watch import PageWatch
from browser.screenshots import keep
from labengine.prefix_doctor.report.page import page_of
from reports import HOSTILE, made_report

pytestmark = pytest.mark.browser


def test_a_page_opens_filters_and_draws(browser: Browser, tmp_path: Path, artifacts: Path) -> None:
    report = made_report(hostile=HOSTILE)
    file = tmp_path / "report.html"
    file.write_text(page_of(report), encoding="utf-8")
    size = {"width": 390, "height": 900}
    with new_context(browser, viewport=size, color_scheme="light", offline=True) as context:
        page = context.new_page()
        watch = PageWatch(page, "file:///")
        page.goto(file.as_uri())
        second = page.locator(".findings > li").nth(1)
        second.locator("summary").focus()
        page.keyboard.press("Enter")
        expect(second.get_by_text(report.findings[1].sentence)).to_be_visible()
        page.get_by_label("Kind").select_option("clock")
        expect(second).to_be_hidden()
        expect(page.get_by_text("1 of 4 findings shown")).to_be_visible()
        page.get_by_label("Kind").select_option("")
        page.get_by_label("Text or tenant").fill("TENANT “BLUE”")
        expect(page.get_by_text("2 of 4 findings shown")).to_be_visible()
        page.get_by_label("Text or tenant").fill("")
        plots = page.locator(".plot")
        plots.first.scroll_into_view_if_needed()
        expect(page.locator(".plot .legend")).to_have_count(plots.count())
        tick = page.locator(".plot .xtick text").first
        expect(tick).to_have_css("fill", "rgb(31, 35, 40)")
        page.emulate_media(color_scheme="dark")
        expect(tick).to_have_css("fill", "rgb(230, 230, 230)")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        keep(page, artifacts / "doctor-page-390-dark.png")
        assert watch.complaints() == [] and page.locator("img").count() == 0
