"""The site of docs/, opened as files: it loads nothing from elsewhere, and its search finds pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.browser import DEADLINE_MS, BrowserPage, RunningBrowser
from tests.support.server import ROOT

SITE: Final = ROOT / "build" / "site"
SEARCH_MS: Final = 4 * DEADLINE_MS
"""The search reads an index of all pages first."""

pytestmark = pytest.mark.skipif(not (SITE / "index.html").exists(), reason="the site is not built (make docs)")


@pytest.fixture
def page(browser: RunningBrowser) -> Iterator[BrowserPage]:
    with browser.page(f"file://{SITE}") as page:
        yield page


def test_the_search_works_in_files(page: BrowserPage) -> None:
    """The fixture fails if a page asks for anything outside of the site."""
    page.go("index.html")
    field = page.tab.locator("input.md-search__input")
    field.click()
    field.press_sequentially("backup")
    page.tab.locator(".md-search-result__link", has_text="Backup and restore").first.click(timeout=SEARCH_MS)
    page.tab.wait_for_url("**/backup.html*", timeout=SEARCH_MS)
    assert page.tab.title().startswith("Backup and restore")
