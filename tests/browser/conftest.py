"""What the tests in a real browser share: one Chromium, and pages of it that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.trial import REFUSED, Try
from tests.conftest import StartServer
from tests.support.browser import CHROMIUM, BrowserPage, RunningBrowser, browser_driver, running_browser
from tests.support.fakes.overview_server import OverviewServer
from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    from playwright.sync_api import Playwright

OpenPage = Callable[..., BrowserPage]
StartStandIn = Callable[..., OverviewServer]
_open: list[BrowserPage] = []


def pytest_itemcollected(item: pytest.Item) -> None:
    if not CHROMIUM:
        item.add_marker(pytest.mark.skip(reason="chromium is not installed (make browser)"))


@pytest.fixture(scope="package")
def driver() -> Iterator[Playwright]:
    """It ends with the tests of this folder, so that others may use asyncio."""
    with browser_driver() as started:
        yield started


@pytest.fixture(scope="package")
def browser(driver: Playwright) -> Iterator[RunningBrowser]:
    """The Chromium of all tests of this folder in one process."""
    with running_browser(driver) as started:
        yield started


@pytest.fixture
def start_stand_in() -> Iterator[StartStandIn]:
    """Starts stand-ins for servers, which end with the test."""
    with ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(OverviewServer(*arguments, **options))


@pytest.fixture
def open_page(browser: RunningBrowser, start_server: StartServer, start_stand_in: StartStandIn) -> Iterator[OpenPage]:
    """Opens pages: of a server, at a path, as wide and as dark as :meth:`RunningBrowser.page` says.

    They are closed before the servers of the test end.
    """
    with ExitStack() as stack:

        def opened(server: LemonbusServer | OverviewServer, path: str = "/", **options: Any) -> BrowserPage:
            page = stack.enter_context(browser.page(f"http://127.0.0.1:{server.port}", **options))
            _open.append(page)
            if isinstance(server, OverviewServer):  # it has no log; the page finds one without lines
                page.context.route_web_socket("**/logs/stream", lambda _: None)
            page.go(path)
            return page

        yield opened
        _open.clear()


@pytest.fixture
def try_model(open_page: OpenPage, shared_server: LemonbusServer) -> Try:
    """Opens the page at a model, of the shared server unless another one is given."""

    def opened(model: str, server: LemonbusServer | None = None, **options: object) -> BrowserPage:
        page = open_page(server or shared_server, f"#/try?model={model}", **options)
        page.may_fail = REFUSED
        return page

    return opened


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what a failed test saw."""
    report = yield
    if report.failed:
        for page in _open:
            report.sections.append((f"page {page.tab.url}", page.seen()))
    return report
