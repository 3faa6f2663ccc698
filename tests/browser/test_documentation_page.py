"""``/docs``, the page about the API, in a browser."""

from __future__ import annotations

import pytest

from tests.browser.conftest import OpenPage
from tests.support.server import LemonbusServer


def test_the_documentation_shows_the_routes(shared_server: LemonbusServer, open_page: OpenPage) -> None:
    page = open_page(shared_server, "/docs")
    page.wait("document.body.innerText.includes('/v1/chat/completions')", "the routes are there")
    assert page.by_role("heading", level=1).count() == 1


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_documentation_fits_a_phone_and_is_accessible(
    shared_server: LemonbusServer, open_page: OpenPage, dark: bool
) -> None:
    page = open_page(shared_server, "/docs", width=400, dark=dark)
    page.wait("document.body.innerText.includes('/v1/chat/completions')", "the routes are there")
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.audit() == []
