"""``/docs``, the page about the API, in a browser."""

from __future__ import annotations

from tests.browser.conftest import OpenPage
from tests.support.server import LemonbusServer


def test_the_documentation_shows_the_routes(shared_server: LemonbusServer, open_page: OpenPage) -> None:
    page = open_page(shared_server, "/docs")
    page.wait("document.body.innerText.includes('/v1/chat/completions')", "the routes are there")
    assert page.by_role("heading", level=1).count() == 1


def test_the_documentation_fits_a_phone(shared_server: LemonbusServer, open_page: OpenPage) -> None:
    page = open_page(shared_server, "/docs", width=400)
    page.wait("document.body.innerText.includes('/v1/chat/completions')", "the routes are there")
    assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.audit() == []
