"""The browser of the tests itself: it ends without a trace, and reports what a page must not do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support import processes
from tests.support.browser import RunningBrowser, process_ids, running_browser

if TYPE_CHECKING:
    from playwright.sync_api import Playwright, Route

ORIGIN = "http://127.0.0.1:9"
STRICT = "default-src 'none'"


def test_no_process_of_the_browser_is_left(driver: Playwright) -> None:
    with running_browser(driver) as browser, browser.page(ORIGIN) as page:
        page.tab.set_content("<p>There is something to draw.</p>")
        seen = process_ids(browser.folder)
    assert len(seen) > 3, "a browser is more processes than that"
    assert not browser.folder.exists()
    assert [pid for pid in seen if processes.alive(pid)] == []


@pytest.mark.parametrize(
    ("body", "policy", "report"),
    [
        ("<script>document.title = 'inline'</script>", STRICT, "refused by the policy: script-src"),
        ("<p style='color: red'>inline</p>", STRICT, "refused by the policy: style-src"),
        ("<img src='http://127.0.0.2:9/picture.png' alt=''>", "", "http://127.0.0.2:9/picture.png"),
        ("<script>missing.function()</script>", "", "exception: missing is not defined"),
        ("<script>console.warn('an old call')</script>", "", "an old call"),
    ],
    ids=["inline script", "inline style", "another origin", "exception", "warning"],
)
def test_what_a_page_must_not_do_is_reported(browser: RunningBrowser, body: str, policy: str, report: str) -> None:
    def answer(route: Route) -> None:
        headers = {"Content-Type": "text/html", "Content-Security-Policy": policy}
        route.fulfill(body=f"<!doctype html><link rel=icon href=data:,>{body}", headers=headers)

    def look() -> None:
        with browser.page(ORIGIN) as page:
            page.tab.route("**/*", answer)
            page.go()

    with pytest.raises(AssertionError, match=re.escape(report)):
        look()
